//! What stands before an API and now and then answers itself, as a load balancer does.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::kit::Platform;

/// The status that it answers a request with; none for what it passes on. Given are method and path.
type Answers = dyn Fn(&str) -> Option<u16> + Send + Sync;

/// The address of one before the platform.
pub async fn before(platform: &Platform, answers: impl Fn(&str) -> Option<u16> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (api, answers): (_, Arc<Answers>) = (platform.api.clone(), Arc::new(answers));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, api, answers) = (client.clone(), api.clone(), Arc::clone(&answers));
            let service = service_fn(move |request| answer(client.clone(), api.clone(), Arc::clone(&answers), request));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn answer(
    client: reqwest::Client,
    api: String,
    answers: Arc<Answers>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    if let Some(status) = answers(&format!("{} {}", head.method, head.uri.path())) {
        return Ok(Response::builder().status(status).body(Full::from("<h1>Not now</h1>")).unwrap());
    }
    let passed = client.request(head.method, format!("{api}{}", head.uri)).headers(head.headers).body(body);
    let answered = passed.send().await.unwrap();
    let status = answered.status();
    Ok(Response::builder().status(status).body(Full::from(answered.bytes().await.unwrap())).unwrap())
}
