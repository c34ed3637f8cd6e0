//! The last step of a browser sign-in: a loopback page that passes the session to `svc` (RFC 8252 section 7.3).
//!
//! The API returns the session in the URL fragment, which browsers do not send, so a script on the page posts it. The
//! path of the page contains 128 random bits. Other pages and programs do not know them, so they cannot inject their
//! own session and make the user work in an attacker's account. Other users of the machine may read the path from the
//! command line of the browser; with `--no-browser`, the user pastes the URL instead.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::CliError;

const PAGE: &str = include_str!("loopback.html");
const MAX_BODY_BYTES: usize = 16 * 1024;
/// The time that the browser has to receive the last response.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The result of a sign-in: the parameters of the URL fragment.
pub type CallbackParams = BTreeMap<String, String>;

pub struct Loopback {
    listener: TcpListener,
    address: Arc<CallbackAddress>,
}

struct CallbackAddress {
    /// `127.0.0.1:port`.
    host: String,
    /// The path with its leading slash.
    path: String,
}

impl Loopback {
    pub async fn listen() -> Result<Self, CliError> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| CliError::Other(format!("failed to get random bytes: {error}")))?;
        let path = format!("/{}", URL_SAFE_NO_PAD.encode(bytes));
        let address = CallbackAddress { host: listener.local_addr()?.to_string(), path };
        Ok(Self { listener, address: Arc::new(address) })
    }

    /// Returns the redirect URL of the sign-in.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address.host, self.address.path)
    }

    /// Serves the page until the browser posts the result of the sign-in.
    pub async fn callback(self) -> Result<CallbackParams, CliError> {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut connections = JoinSet::new();
        let params = loop {
            let stream = tokio::select! {
                params = receiver.recv() => break params,
                accepted = self.listener.accept() => accepted?.0,
            };
            let (address, sender) = (Arc::clone(&self.address), sender.clone());
            let service = service_fn(move |request| respond(Arc::clone(&address), sender.clone(), request));
            let mut http = hyper::server::conn::http1::Builder::new();
            connections.spawn(http.keep_alive(false).serve_connection(TokioIo::new(stream), service));
        };
        // The timeout covers connections that the browser opened but did not use.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
        params.ok_or_else(|| CliError::Other("the browser did not return a result".to_owned()))
    }
}

async fn respond(
    address: Arc<CallbackAddress>,
    sender: mpsc::Sender<CallbackParams>,
    request: Request<Incoming>,
) -> Result<Response<String>, Infallible> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    // Checking the Host header prevents DNS rebinding.
    let is_our_page = request.uri().path() == address.path && header(HOST) == Some(address.host.as_str());
    let is_same_origin = header(ORIGIN) == Some(format!("http://{}", address.host).as_str());
    Ok(match *request.method() {
        Method::GET if is_our_page => response(StatusCode::OK, PAGE),
        Method::POST if is_our_page && is_same_origin => {
            let Ok(body) = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await else {
                return Ok(response(
                    StatusCode::BAD_REQUEST,
                    "The request is too large or incomplete. Run svc login again.",
                ));
            };
            let params: CallbackParams = url::form_urlencoded::parse(&body.to_bytes()).into_owned().collect();
            let message = match params.get("message") {
                Some(message) => message.clone(),
                None => "You are signed in. Go back to the terminal.".to_owned(),
            };
            if params.contains_key("token") || params.contains_key("error") {
                // Only the first result counts.
                let _ = sender.try_send(params);
                response(StatusCode::OK, &message)
            } else {
                response(StatusCode::BAD_REQUEST, "The sign-in is incomplete. Run svc login again.")
            }
        }
        _ => response(StatusCode::NOT_FOUND, "Page not found."),
    })
}

fn response(status: StatusCode, text: &str) -> Response<String> {
    let html = text == PAGE;
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    let policy = "default-src 'none'; script-src 'sha256-SWeeEuYv3I7xofauesc2xvLlFWB+KgQyt28eZGxZnmo='; connect-src 'self'; frame-ancestors 'none'";
    for (name, value) in [
        (CONTENT_TYPE, if html { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" }),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "same-origin"),
        (CONTENT_SECURITY_POLICY, policy),
    ] {
        response.headers_mut().insert(name, hyper::header::HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use ring::digest::{SHA256, digest};

    use super::*;

    #[test]
    fn content_security_policy_allows_the_script_of_the_page() {
        let script = PAGE.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
        let hash = STANDARD.encode(digest(&SHA256, script.as_bytes()));
        let policy = response(StatusCode::OK, PAGE).headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.contains(&format!("'sha256-{hash}'")), "{policy} does not name {hash}");
    }
}
