//! `bare ADDRESS FILE`: an actix-web server that returns a fixed response for each path in the file. `cargo xtask
//! bench` compares it with the control API's static responses.

use std::{env, fs, io};

use actix_web::{App, HttpResponse, HttpServer, web};
use serde::Deserialize;

/// A fixed response.
#[derive(Clone, Deserialize)]
struct FixedResponse {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, file] = arguments.as_slice() else { return Err(io::Error::other("usage: bare ADDRESS FILE")) };
    let responses: Vec<FixedResponse> = serde_json::from_slice(&fs::read(file)?)?;
    let app = move || {
        responses.iter().cloned().fold(App::new(), |app, FixedResponse { path, headers, body }| {
            let (headers, body) = (web::Data::new(headers), web::Bytes::from(body));
            let handler = move || {
                let mut response = HttpResponse::Ok();
                for (name, value) in headers.iter() {
                    response.insert_header((name.as_str(), value.as_str()));
                }
                std::future::ready(response.body(body.clone()))
            };
            app.route(&path, web::get().to(handler))
        })
    };
    HttpServer::new(app).bind(address)?.run().await
}
