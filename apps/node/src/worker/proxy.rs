//! A request's way to a worker and back. Nothing of it is held up: bodies go piece by piece, in both directions at once.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodyStream, SizedStream};
use actix_web::http::header::{CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Bytes, Payload};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, rt};
use futures_util::stream::{self, Stream};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::process::Lease;
use super::version::{Resting, Worker};
use super::{headers, upgrade};
use crate::origin::Origin;
use crate::page::page;

/// How long a worker may think before it begins to answer.
const PATIENCE: Duration = Duration::from_secs(100);

/// The worker's answer to the request.
pub async fn answer(
    request: &HttpRequest,
    payload: Payload,
    origin: Origin,
    worker: Option<&Arc<Worker>>,
) -> HttpResponse {
    let Some(worker) = worker else {
        return page(StatusCode::SERVICE_UNAVAILABLE, "This project is worker code, which this node does not run.");
    };
    let lease = match worker.lease().await {
        Ok(lease) => lease,
        Err(resting) => return rest(&resting),
    };
    let is_websocket = headers::is_websocket(request.headers());
    // What follows the request for a WebSocket is no body.
    let (body, after) = if is_websocket { (None, Some(payload)) } else { (Some(payload), None) };
    let Some(asked) = translate(request, origin, body) else {
        return page(StatusCode::BAD_REQUEST, "The request is malformed.");
    };
    match timeout(PATIENCE, send(asked, &lease)).await {
        Ok(Ok(response)) if response.status() == 101 => upgrade::join(response, after, lease),
        Ok(Ok(response)) => pass_on(response, lease, request.method() == Method::HEAD),
        Ok(Err(error)) => {
            tracing::debug!(project = worker.project, error = format!("{error:#}"), "a worker did not answer");
            page(StatusCode::BAD_GATEWAY, "The code of this site ended before it answered.")
        }
        Err(_) => page(StatusCode::GATEWAY_TIMEOUT, "The code of this site did not answer in time."),
    }
}

fn rest(Resting(left): &Resting) -> HttpResponse {
    let mut response = page(StatusCode::SERVICE_UNAVAILABLE, "The code of this site does not run at the moment.");
    response.headers_mut().insert(RETRY_AFTER, (left.as_secs() + 1).into());
    response
}

fn translate(request: &HttpRequest, origin: Origin, payload: Option<Payload>) -> Option<Request<Outgoing>> {
    let carries = |name| request.headers().contains_key(name);
    let payload = payload.filter(|_| carries(CONTENT_LENGTH) || carries(TRANSFER_ENCODING));
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut asked = Request::builder().method(request.method().as_str()).uri(path).body(Outgoing(payload)).ok()?;
    *asked.headers_mut() = headers::of_request(request, origin)?;
    Some(asked)
}

/// One connection for each request: to a unix socket that costs next to nothing, and nothing can be left over on it.
async fn send(asked: Request<Outgoing>, lease: &Lease) -> anyhow::Result<Response<Incoming>> {
    let stream = lease.connect().await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    rt::spawn(connection.with_upgrades());
    Ok(sender.send_request(asked).await?)
}

fn pass_on(response: Response<Incoming>, lease: Lease, is_head: bool) -> HttpResponse {
    let length = response.headers().get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    let mut answer = begin(&response);
    if matches!(response.status().as_u16(), 204 | 304) {
        return answer.finish();
    }
    let chunks = chunks(response.into_body(), lease);
    match length {
        Some(length) if is_head => answer.body(SizedStream::new(length, stream::empty::<io::Result<Bytes>>())),
        None if is_head => answer.finish(),
        Some(length) => answer.body(SizedStream::new(length, chunks)),
        None => answer.body(BodyStream::new(chunks)),
    }
}

/// The status and the headers.
pub fn begin(response: &Response<Incoming>) -> HttpResponseBuilder {
    let status = StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut answer = HttpResponse::build(status);
    for header in headers::of_answer(response.headers()) {
        answer.append_header(header);
    }
    answer
}

fn chunks(body: Incoming, lease: Lease) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold((body, lease), async |(mut body, lease)| {
        loop {
            let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await else {
                return Ok(None);
            };
            // What is no data are trailers, which end with the connection.
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some((data, (body, lease))));
            }
        }
    })
}

/// What the visitor sends.
struct Outgoing(Option<Payload>);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(payload) = &mut self.0 else { return Poll::Ready(None) };
        let next = Pin::new(payload).poll_next(context);
        // The visitor's error may not leave this thread; what it says does not matter to the worker.
        next.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data).map_err(|error| io::Error::other(error.to_string()))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}
