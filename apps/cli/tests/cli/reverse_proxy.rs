//! A reverse proxy in front of the API that answers some requests itself, like a load balancer. With the status 200, the
//! response is an empty JSON object.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::support::Platform;

/// Returns the status for a request, given as method and path, or `None` to forward the request.
type Intercept = dyn Fn(&str) -> Option<u16> + Send + Sync;

/// Starts a proxy in front of the platform and returns its URL.
pub async fn start(platform: &Platform, intercept: impl Fn(&str) -> Option<u16> + Send + Sync + 'static) -> String {
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
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    if let Some(status) = intercept(&format!("{} {}", head.method, head.uri.path())) {
        let body = if status == 200 { "{}" } else { "<h1>Not now</h1>" };
        return Ok(Response::builder().status(status).body(Full::from(body)).unwrap());
    }
    let forwarded = client.request(head.method, format!("{api}{}", head.uri)).headers(head.headers).body(body);
    let response = forwarded.send().await.unwrap();
    let status = response.status();
    Ok(Response::builder().status(status).body(Full::from(response.bytes().await.unwrap())).unwrap())
}
