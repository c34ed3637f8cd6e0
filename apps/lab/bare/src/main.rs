//! `bare ADDRESS FILE`: an actix-web program that answers each path of the file with its bytes and does nothing else. It is
//! what `cargo xtask bench` measures the control API's fixed answers beside.

use std::{env, fs, io};

use actix_web::{App, HttpResponse, HttpServer, web};
use serde::Deserialize;

/// An answer, as it is to go out.
#[derive(Clone, Deserialize)]
struct Answer {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, file] = arguments.as_slice() else { return Err(io::Error::other("bare ADDRESS FILE")) };
    let answers: Vec<Answer> = serde_json::from_slice(&fs::read(file)?)?;
    let app = move || {
        answers.iter().cloned().fold(App::new(), |app, Answer { path, headers, body }| {
            let (headers, body) = (web::Data::new(headers), web::Bytes::from(body));
            let answer = move || {
                let mut response = HttpResponse::Ok();
                for (name, value) in headers.iter() {
                    response.insert_header((name.as_str(), value.as_str()));
                }
                std::future::ready(response.body(body.clone()))
            };
            app.route(&path, web::get().to(answer))
        })
    };
    HttpServer::new(app).bind(address)?.run().await
}
