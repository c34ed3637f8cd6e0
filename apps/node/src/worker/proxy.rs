//! The proxy from visitors to workers. It streams bodies in both directions concurrently.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodyStream, SizedStream};
use actix_web::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use actix_web::http::{Method, StatusCode, Version};
use actix_web::web::{Bytes, Payload};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, rt};
use daemon::error_chain;
use futures_util::stream::{self, Stream};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::Builder;
use hyper::header::HeaderValue;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::fleet::Unavailable;
use super::process::RequestGuard;
use super::version::{Rejection, VisitorGuard, Worker};
use super::{MAX_HEAD_BYTES, headers, upgrade};
use crate::auth::WorkerSession;
use crate::origin::Origin;
use crate::page::{page, with_retry_after};

/// Forwards the request to the worker and returns its response. `session` is the session of the visitor.
pub async fn forward_request(
    request: &HttpRequest,
    payload: Payload,
    origin: Origin,
    session: Option<&WorkerSession>,
    worker: Result<&Arc<Worker>, Unavailable>,
) -> HttpResponse {
    let worker = match worker {
        Ok(worker) => worker,
        Err(reason) => return not_run(reason),
    };
    let guard = match worker.admit_visitor(origin.client).await {
        Ok(guard) => guard,
        Err(rejection) => return unavailable(&rejection),
    };
    let is_websocket = headers::is_websocket(request.headers());
    // After a WebSocket request, the payload is WebSocket data instead of a body.
    let (body, websocket) = if is_websocket { (None, Some(payload)) } else { (Some(payload), None) };
    let taken = BodyProgress::default();
    let Some(outgoing) = outgoing_request(request, origin, session, body.map(|body| (body, taken.clone()))) else {
        return page(StatusCode::BAD_REQUEST, "The request is malformed. Check its address and headers.");
    };
    match taken.limit(worker.response_timeout(), send(outgoing, &guard.request)).await {
        Ok(Ok(response)) if response.status() == 101 => match websocket {
            Some(visitor) if upgrade::is_websocket(&response) => upgrade::join(response, visitor, guard),
            _ => unexpected_upgrade(&worker.project),
        },
        Ok(Ok(response)) => forward_response(response, guard, request.method() == Method::HEAD),
        Ok(Err(error)) => {
            tracing::debug!(project = worker.project, error = format!("{error:#}"), "a worker did not respond");
            page(StatusCode::BAD_GATEWAY, "The code of this site stopped before it responded. Try again in a moment.")
        }
        Err(_) => {
            page(StatusCode::GATEWAY_TIMEOUT, "The code of this site did not respond in time. Try again in a moment.")
        }
    }
}

/// Returns the response to a 101 that the request did not ask for. If the 101 were forwarded, the visitor's client or a
/// proxy would take the next bytes for another protocol, or for the response to another request.
fn unexpected_upgrade(project: &str) -> HttpResponse {
    tracing::debug!(project, "a worker switched protocols without a request for it");
    page(StatusCode::BAD_GATEWAY, "The code of this site sent an invalid response. Contact the owner of the site.")
}

fn not_run(reason: Unavailable) -> HttpResponse {
    let message = match reason {
        Unavailable::NoWorkers => "The code of this site does not run on this server. Contact the owner of the site.",
        Unavailable::NoEnvironment => {
            "This server has not received the settings of this site yet. Try again in a minute."
        }
    };
    page(StatusCode::SERVICE_UNAVAILABLE, message)
}

fn unavailable(rejection: &Rejection) -> HttpResponse {
    let message = match rejection {
        Rejection::BackingOff(_) => "The code of this site is not running at the moment. Try again in a minute.",
        Rejection::NoMemory => "This server has no memory to start the code of this site. Try again in a moment.",
        Rejection::Full => "This site has too many concurrent requests. Try again in a moment.",
        Rejection::ClientFull => "Your network has too many concurrent requests to this site. Try again in a moment.",
    };
    let status = match rejection {
        Rejection::ClientFull => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    with_retry_after(page(status, message), rejection.retry_after())
}

fn outgoing_request(
    request: &HttpRequest,
    origin: Origin,
    session: Option<&WorkerSession>,
    body: Option<(Payload, BodyProgress)>,
) -> Option<Request<Outgoing>> {
    let body = body.filter(|_| has_body(request));
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut outgoing = Request::builder().method(request.method().as_str()).uri(path).body(Outgoing(body)).ok()?;
    *outgoing.headers_mut() = headers::to_worker(request, origin, session.map(|session| session.handle.as_bytes()))?;
    if outgoing.body().0.is_some() && !outgoing.headers().contains_key("content-length") {
        // Without this header, hyper sends no body of a GET or HEAD.
        outgoing.headers_mut().insert("transfer-encoding", HeaderValue::from_static("chunked"));
    }
    Some(outgoing)
}

/// Returns whether a request has a body. In HTTP/1.1, a header states it (RFC 9112 section 6). HTTP/2 needs none: then
/// only a read without `Content-Length` has no body.
fn has_body(request: &HttpRequest) -> bool {
    let has_header = |name| request.headers().contains_key(name);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    has_header(CONTENT_LENGTH) || has_header(TRANSFER_ENCODING) || (request.version() == Version::HTTP_2 && !is_read)
}

/// Sends the request on a new connection. Unix socket connections are cheap, and no state is left from earlier
/// requests.
async fn send(outgoing: Request<Outgoing>, guard: &RequestGuard) -> anyhow::Result<Response<Incoming>> {
    let stream = guard.connect().await?;
    let (mut sender, connection) = Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await?;
    rt::spawn(connection.with_upgrades());
    Ok(sender.send_request(outgoing).await?)
}

fn forward_response(response: Response<Incoming>, guard: VisitorGuard, is_head: bool) -> HttpResponse {
    let length = response.headers().get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    let mut builder = response_head(&response);
    if matches!(response.status().as_u16(), 204 | 304) {
        return builder.finish();
    }
    let chunks = chunks(response.into_body(), guard);
    let nothing = stream::empty::<io::Result<Bytes>>();
    match length {
        Some(length) if is_head => builder.body(SizedStream::new(length, nothing)),
        // The response to GET has no known length either (RFC 9110 section 8.6).
        None if is_head => builder.body(BodyStream::new(nothing)),
        Some(length) => builder.body(SizedStream::new(length, chunks)),
        None => builder.body(BodyStream::new(chunks)),
    }
}

/// Returns the head of the response: status and headers.
pub fn response_head(response: &Response<Incoming>) -> HttpResponseBuilder {
    let status = StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut builder = HttpResponse::build(status);
    for header in headers::to_visitor(response.headers()) {
        builder.append_header(header);
    }
    builder
}

fn chunks(body: Incoming, guard: VisitorGuard) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold((body, guard), async |(mut body, guard)| {
        loop {
            let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| io::Error::other(error_chain(error))).inspect_err(|error| {
                tracing::debug!(project = guard.request.project(), %error, "a response of a worker ended early");
            });
            // The other frames are trailers, which are not forwarded.
            if let Ok(data) = frame?.into_data() {
                return Ok(Some((data, (body, guard))));
            }
        }
    })
}

/// The time at which the worker took the last chunk of the request body, or the beginning of the request.
#[derive(Clone)]
struct BodyProgress(Rc<Cell<Instant>>);

impl Default for BodyProgress {
    fn default() -> Self {
        Self(Rc::new(Cell::new(Instant::now())))
    }
}

impl BodyProgress {
    /// Waits for a response. The timeout begins again with each chunk, so that slow visitors can send large bodies.
    async fn limit<T>(&self, response_timeout: Duration, response: impl Future<Output = T>) -> Result<T, Elapsed> {
        let mut response = pin!(response);
        loop {
            let last = self.0.get();
            match timeout_at(last + response_timeout, &mut response).await {
                Err(_) if self.0.get() > last => {}
                result => return result,
            }
        }
    }
}

/// The request body from the visitor.
struct Outgoing(Option<(Payload, BodyProgress)>);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some((payload, taken)) = &mut self.0 else { return Poll::Ready(None) };
        let next = Pin::new(payload).poll_next(context);
        if next.is_ready() {
            taken.0.set(Instant::now());
        }
        // The payload's error is not `Send`, so it is converted to text.
        next.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data).map_err(|error| io::Error::other(error.to_string()))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}
