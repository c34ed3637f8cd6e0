//! A reverse proxy in front of the API that answers some requests itself, like a load balancer, or loses the response.
//! With the status 200, its own response is an empty JSON object.

use std::io;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::support::Platform;

/// How the proxy handles a request.
pub enum Action {
    Forward,
    /// Responds with this status without forwarding the request.
    Respond(u16),
    /// Forwards the request, and closes the connection instead of returning the response.
    LoseResponse,
}

/// Returns the action for a request, given as method and path.
type Intercept = dyn Fn(&str) -> Action + Send + Sync;

/// Starts a proxy that responds with the status that `intercept` returns. Returns its URL.
pub async fn start(platform: &Platform, intercept: impl Fn(&str) -> Option<u16> + Send + Sync + 'static) -> String {
    start_with(platform, move |request| intercept(request).map_or(Action::Forward, Action::Respond)).await
}

/// Starts a proxy in front of the platform and returns its URL.
pub async fn start_with(platform: &Platform, intercept: impl Fn(&str) -> Action + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (api, intercept): (_, Arc<Intercept>) = (platform.api.clone(), Arc::new(intercept));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, api, intercept) = (client.clone(), api.clone(), Arc::clone(&intercept));
            let service =
                service_fn(move |request| handle(client.clone(), api.clone(), Arc::clone(&intercept), request));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn handle(
    client: reqwest::Client,
    api: String,
    intercept: Arc<Intercept>,
    request: Request<Incoming>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let action = intercept(&format!("{} {}", head.method, head.uri.path()));
    if let Action::Respond(status) = action {
        let body = if status == 200 { "{}" } else { "<h1>Not now</h1>" };
        return Ok(Response::builder().status(status).body(Full::from(body)).unwrap());
    }
    let forwarded = client.request(head.method, format!("{api}{}", head.uri)).headers(head.headers).body(body);
    let response = forwarded.send().await.unwrap();
    if let Action::LoseResponse = action {
        return Err(io::Error::other("the response is lost"));
    }
    let status = response.status();
    Ok(Response::builder().status(status).body(Full::from(response.bytes().await.unwrap())).unwrap())
}
