//! A small HTTP server. It serves one request per connection, so that a fault ends with its connection.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION, ORIGIN, RETRY_AFTER,
    SET_COOKIE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use url::form_urlencoded;

use crate::listener::accept;

const MAX_BODY_BYTES: usize = 16 << 20;

/// A request with the parameters of its query and form.
#[derive(Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    /// The bytes of the body.
    pub body: Bytes,
    parameters: HashMap<String, String>,
    headers: HeaderMap,
}

impl Request {
    async fn read(request: hyper::Request<Incoming>) -> io::Result<Self> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(io::Error::other)?.to_bytes();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let parsed = |text| form_urlencoded::parse(text).into_owned();
        let parameters = parsed(query.as_bytes()).chain(parsed(&body)).collect();
        Ok(Self {
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            parameters,
            query,
            body,
            headers: head.headers,
        })
    }

    /// Returns a parameter, or an empty text if it is absent.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }

    /// Returns the names of the parameters.
    pub fn parameter_names(&self) -> impl Iterator<Item = &str> {
        self.parameters.keys().map(String::as_str)
    }

    /// Returns the value of the header with this name, or an empty text if it is absent or not ASCII.
    pub fn named_header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns whether a page of another origin made a browser send a request that may change state. Browsers add
    /// `Origin` to every such request, and recent browsers also add `Sec-Fetch-Site`. Other clients send neither (Fetch
    /// standard, "`Origin` header"; Fetch Metadata, section 2.2).
    pub fn is_cross_origin_write(&self) -> bool {
        let (origin, site) = (self.header(ORIGIN), self.named_header("sec-fetch-site"));
        let host = origin.split_once("://").map(|(_, host)| host);
        let is_other_origin = !origin.is_empty() && host != Some(self.header(HOST));
        let is_other_site = !["", "same-origin", "none"].contains(&site);
        !["GET", "HEAD"].contains(&self.method.as_str()) && (is_other_origin || is_other_site)
    }

    /// Returns the value of a header, or an empty text if it is absent or not ASCII.
    pub fn header(&self, name: HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A response. Its body is sent in chunks without a length.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub content_type: &'static str,
    pub location: Option<String>,
    /// The header `Set-Cookie`.
    pub cookie: Option<String>,
    /// The header `Retry-After`, in seconds.
    pub retry_after: Option<u8>,
    /// The content security policy.
    pub policy: Option<&'static str>,
    pub body: Vec<u8>,
    /// The rest of the body, which is sent as it arrives.
    pub rest: Option<mpsc::Receiver<io::Result<Bytes>>>,
}

type Chunks = StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>;

impl Response {
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            content_type,
            location: None,
            cookie: None,
            retry_after: None,
            policy: None,
            body: body.into(),
            rest: None,
        }
    }

    pub fn json(body: &serde_json::Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    /// Returns a redirect. After a form, browsers follow it with a GET request.
    pub fn redirect(location: impl Into<String>) -> Self {
        Self { location: Some(location.into()), ..Self::new(302, "text/plain", "") }
    }

    fn into_hyper(self) -> io::Result<hyper::Response<Chunks>> {
        let mut body = Bytes::from(self.body);
        let mut chunks = Vec::new();
        while !body.is_empty() {
            chunks.push(Ok(Frame::data(body.split_to(body.len().min(64 * 1024)))));
        }
        let rest = stream::unfold(self.rest, async |rest| {
            let mut rest = rest?;
            Some((rest.recv().await?.map(Frame::data), Some(rest)))
        });
        let mut response = hyper::Response::new(StreamBody::new(stream::iter(chunks).chain(rest).boxed()));
        *response.status_mut() = StatusCode::from_u16(self.status).map_err(io::Error::other)?;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(policy) = self.policy {
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, u16::from(seconds).into());
        }
        if let Some(cookie) = self.cookie {
            headers.insert(SET_COOKIE, cookie.try_into().map_err(io::Error::other)?);
        }
        if let Some(location) = self.location {
            headers.insert(LOCATION, location.try_into().map_err(io::Error::other)?);
        }
        Ok(response)
    }
}

/// Serves requests until the future is dropped, which also closes the connections. A handler that returns `None` closes
/// the connection without a response.
pub async fn serve<F>(listener: TcpListener, handler: impl Fn(Request) -> F + Clone + Send + Sync + 'static)
where
    F: Future<Output = Option<Response>> + Send + 'static,
{
    accept(listener, move |stream| serve_connection(stream, handler.clone())).await;
}

/// Serves a system on a free port until the returned task is dropped. `create` receives the base URL, which is also
/// returned.
pub async fn serve_on_free_port<T, F>(
    create: impl FnOnce(&str) -> T,
    respond: impl Fn(Arc<T>, Request) -> F + Clone + Send + Sync + 'static,
) -> (String, Arc<T>, JoinSet<()>)
where
    T: Send + Sync + 'static,
    F: Future<Output = Option<Response>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = base(listener.local_addr().unwrap());
    let system = Arc::new(create(&url));
    let (served, mut task) = (Arc::clone(&system), JoinSet::new());
    task.spawn(serve(listener, move |request| respond(Arc::clone(&served), request)));
    (url, system, task)
}

/// Runs a handler in a task, so that it completes even if the client disconnects, as at the real systems.
pub async fn run_to_completion(handler: impl Future<Output = Option<Response>> + Send + 'static) -> Option<Response> {
    tokio::spawn(handler).await.unwrap()
}

/// Serves requests over TLS, like [`serve`].
pub async fn serve_tls<F>(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handler: impl Fn(Request) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Option<Response>> + Send + 'static,
{
    let serve = move |stream| {
        let (handler, acceptor) = (handler.clone(), acceptor.clone());
        async move {
            // A client may reject the certificate.
            if let Ok(stream) = acceptor.accept(stream).await {
                serve_connection(stream, handler).await;
            }
        }
    };
    accept(listener, serve).await;
}

async fn serve_connection<S, F>(stream: S, handler: impl Fn(Request) -> F + Clone)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Option<Response>>,
{
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move {
            let response = handler(Request::read(request).await?).await;
            response.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted))?.into_hyper()
        }
    });
    let mut connection = http1::Builder::new();
    connection.keep_alive(false).title_case_headers(true);
    // A client may disconnect at any time.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

/// Returns whether a path is `base` or below it.
pub fn is_within(path: &str, base: &str) -> bool {
    path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the URL at which this machine reaches a listener.
pub fn base(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}
