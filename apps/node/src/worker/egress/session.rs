//! One connection of a worker process to the proxy.
//!
//! `workerd` sends requests with absolute URLs, even for https, and `CONNECT` for sockets. The process is untrusted: it
//! may send anything.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::uri::Scheme;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, on as on_upgrade};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::copy_bidirectional;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::dialer::Dialer;
use super::refusal::{Body, Refusal};
use super::upstream::{Origin, Upstream};
use crate::duplex::Duplex;
use crate::worker::MAX_HEAD_BYTES;

/// The timeout of a request head, and of an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers that concern one connection only (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Serves the connection until either side closes it.
pub async fn serve(dialer: Arc<Dialer>, stream: UnixStream) {
    let (requested, tunnel) = oneshot::channel();
    let session = Session { dialer, upstream: Mutex::default(), tunnel: Mutex::new(Some(requested)) };
    let session = Arc::new(session);
    let service = service_fn(move |request| {
        let session = Arc::clone(&session);
        async move { Ok::<_, Infallible>(session.respond(request).await.unwrap_or_else(Refusal::response)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // When the connection ends, the session is dropped, which also ends the wait for a tunnel.
    let (served, ()) = tokio::join!(connection, async {
        if let Ok(tunnel) = tunnel.await {
            tunnel.run().await;
        }
    });
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of a worker failed");
    }
}

struct Session {
    dialer: Arc<Dialer>,
    /// The connection to the last used origin. So a worker has at most one connection to an origin for each of its
    /// connections to the proxy.
    upstream: Mutex<Option<Upstream>>,
    tunnel: Mutex<Option<oneshot::Sender<Tunnel>>>,
}

/// Two connections to join after the response is sent.
struct Tunnel {
    worker: OnUpgrade,
    origin: Box<dyn Duplex>,
}

impl Tunnel {
    async fn run(mut self) {
        if let Ok(worker) = self.worker.await {
            // Either side may close the connection at any time.
            let _ = copy_bidirectional(&mut TokioIo::new(worker), &mut self.origin).await;
        }
    }
}

impl Session {
    async fn respond(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        if request.method() == Method::CONNECT {
            let (host, port) = host_and_port(request.uri(), None)?;
            let origin = self.dialer.connect(&host, port).await?;
            self.open_tunnel(on_upgrade(request), Box::new(origin))?;
            return Ok(Response::new(Either::Right(Full::default())));
        }
        let is_https = match request.uri().scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(Refusal::Malformed),
        };
        let (host, port) = host_and_port(request.uri(), Some(if is_https { 443 } else { 80 }))?;
        let origin = Origin { is_https, host, port };
        let is_websocket = is_websocket(request.headers());
        let upgrade = is_websocket.then(|| on_upgrade(&mut request));
        let mut response = self.send(origin, outgoing_request(request, is_websocket)?).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // An origin that switches protocols although the request did not ask for it violates HTTP.
            let worker = upgrade.filter(|_| is_websocket_upgrade(response.headers())).ok_or(Refusal::Lost)?;
            let origin = on_upgrade(&mut response).await.map_err(|_| Refusal::Lost)?;
            self.open_tunnel(worker, Box::new(TokioIo::new(origin)))?;
        } else {
            remove_hop_by_hop(response.headers_mut());
        }
        Ok(response.map(Either::Left))
    }

    /// Sends the request over the last connection if that leads to the origin, otherwise over a new one.
    async fn send(&self, origin: Origin, mut request: Request<Incoming>) -> Result<Response<Incoming>, Refusal> {
        let last = self.last_upstream().take().filter(|upstream| upstream.can_serve(&origin));
        if let Some(mut upstream) = last {
            match upstream.send(request).await {
                Ok(response) => return Ok(self.keep(upstream, response)),
                Err((_, Some(unsent))) => request = *unsent,
                Err((refusal, None)) => return Err(refusal),
            }
        }
        let mut upstream = Upstream::open(&self.dialer, origin).await?;
        let response = upstream.send(request).await.map_err(|(refusal, _)| refusal)?;
        Ok(self.keep(upstream, response))
    }

    /// Keeps the connection for the next request. The connection also delivers the body of this response.
    fn keep(&self, upstream: Upstream, response: Response<Incoming>) -> Response<Incoming> {
        *self.last_upstream() = Some(upstream);
        response
    }

    fn last_upstream(&self) -> std::sync::MutexGuard<'_, Option<Upstream>> {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_tunnel(&self, worker: OnUpgrade, origin: Box<dyn Duplex>) -> Result<(), Refusal> {
        let tunnel = self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
        tunnel.ok_or(Refusal::Malformed)?.send(Tunnel { worker, origin }).map_err(|_| Refusal::Lost)
    }
}

/// Returns the host of a URL without brackets, and its port.
fn host_and_port(uri: &Uri, default_port: Option<u16>) -> Result<(String, u16), Refusal> {
    let host = uri.host().ok_or(Refusal::Malformed)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok((bare.to_owned(), uri.port_u16().or(default_port).ok_or(Refusal::Malformed)?))
}

/// Returns the request to the origin: with the path instead of the URL, and with the URL's host in `Host`.
fn outgoing_request(mut request: Request<Incoming>, is_websocket: bool) -> Result<Request<Incoming>, Refusal> {
    let authority = request.uri().authority().ok_or(Refusal::Malformed)?.as_str();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = HeaderValue::from_str(host).map_err(|_| Refusal::Malformed)?;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = Uri::try_from(path).map_err(|_| Refusal::Malformed)?;
    *request.uri_mut() = path;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    remove_hop_by_hop(headers);
    headers.insert(HOST, host);
    if is_websocket {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    Ok(request)
}

/// Removes the headers that concern one connection only, and those that `Connection` names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION).filter_map(|name| name.parse().ok()).collect();
    for name in HOP_BY_HOP.into_iter().chain(named) {
        headers.remove(name);
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    is_websocket_upgrade(headers) && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let mut protocols = tokens(headers, &UPGRADE);
    protocols.next().is_some_and(|token| token.eq_ignore_ascii_case("websocket")) && protocols.next().is_none()
}

/// Returns the elements of a list header.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}
