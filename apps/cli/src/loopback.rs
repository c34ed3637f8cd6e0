//! The last step of a sign-in in the browser: a page on this machine that hands the session over (RFC 8252 section 7.3).
//!
//! The API puts the session in the fragment, which browsers keep to themselves; so a script of the page sends it on.
//! The page's path holds 128 bits that only whoever was given the address knows. Without them no other page and no other
//! program can hand in a session of its own, and have somebody work in its author's account. Other users of the machine
//! are given it where they can read a browser's command line: `--no-browser` has it pasted instead.

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

use crate::failure::Failure;

const PAGE: &str = include_str!("loopback.html");
const MOST_BYTES: usize = 16 * 1024;
/// How long the browser has to take the last answer.
const FAREWELL: Duration = Duration::from_millis(500);

/// What a sign-in came to: the parameters of the fragment.
pub type Told = BTreeMap<String, String>;

pub struct Loopback {
    listener: TcpListener,
    place: Arc<Place>,
}

struct Place {
    /// `127.0.0.1:port`.
    host: String,
    /// With its slash.
    path: String,
}

impl Loopback {
    pub async fn listen() -> Result<Self, Failure> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| Failure::Other(format!("no randomness: {error}")))?;
        let path = format!("/{}", URL_SAFE_NO_PAD.encode(bytes));
        let place = Place { host: listener.local_addr()?.to_string(), path };
        Ok(Self { listener, place: Arc::new(place) })
    }

    /// Where the browser is to be sent at the end.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.place.host, self.place.path)
    }

    /// Waits for the browser.
    pub async fn told(self) -> Result<Told, Failure> {
        let (tell, mut told) = mpsc::channel(1);
        let mut connections = JoinSet::new();
        let said = loop {
            let stream = tokio::select! {
                said = told.recv() => break said,
                accepted = self.listener.accept() => accepted?.0,
            };
            let (place, tell) = (Arc::clone(&self.place), tell.clone());
            let service = service_fn(move |request| answer(Arc::clone(&place), tell.clone(), request));
            let mut http = hyper::server::conn::http1::Builder::new();
            connections.spawn(http.keep_alive(false).serve_connection(TokioIo::new(stream), service));
        };
        // Connections that a browser opened and did not use stay behind.
        let _ = tokio::time::timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
        said.ok_or_else(|| Failure::Other("the browser's answer was lost".to_owned()))
    }
}

async fn answer(
    place: Arc<Place>,
    tell: mpsc::Sender<Told>,
    request: Request<Incoming>,
) -> Result<Response<String>, Infallible> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    // A name that somebody else's server gives for this machine is not this page's.
    let ours = request.uri().path() == place.path && header(HOST) == Some(place.host.as_str());
    let same_origin = header(ORIGIN) == Some(format!("http://{}", place.host).as_str());
    Ok(match *request.method() {
        Method::GET if ours => page(StatusCode::OK, PAGE),
        Method::POST if ours && same_origin => {
            let Ok(body) = Limited::new(request.into_body(), MOST_BYTES).collect().await else {
                return Ok(page(StatusCode::BAD_REQUEST, "This is no sign-in."));
            };
            let said: Told = url::form_urlencoded::parse(&body.to_bytes()).into_owned().collect();
            let words = match said.get("message") {
                Some(message) => message.clone(),
                None => "You are signed in. Go back to the terminal.".to_owned(),
            };
            if said.contains_key("token") || said.contains_key("error") {
                // The first one counts.
                let _ = tell.try_send(said);
                page(StatusCode::OK, &words)
            } else {
                page(StatusCode::BAD_REQUEST, "This is no sign-in. Begin again with svc login.")
            }
        }
        _ => page(StatusCode::NOT_FOUND, "There is nothing here."),
    })
}

fn page(status: StatusCode, text: &str) -> Response<String> {
    let html = text == PAGE;
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    let policy = "default-src 'none'; script-src 'sha256-WxLw2frwIRMoqpmisucyNRA9l7w9Tqq/5XfjWQgPuLw='; connect-src 'self'; frame-ancestors 'none'";
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
    fn the_policy_lets_the_page_s_own_script_run() {
        let script = PAGE.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
        let hash = STANDARD.encode(digest(&SHA256, script.as_bytes()));
        let policy = page(StatusCode::OK, PAGE).headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.contains(&format!("'sha256-{hash}'")), "{policy} does not name {hash}");
    }
}
