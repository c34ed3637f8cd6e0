//! The responses to requests over HTTP/1 that the app does not receive.
//!
//! actix itself responds to a request that it cannot parse, with an empty body: 400, 431 beyond 96 header lines or 128 KiB,
//! and 408 if the head arrives too slowly. The connection replaces this response. To recognize it, the connection does
//! not rely on its content: it is written while the app has no response that is not yet sent.
//! After a pipelined request, whose response may be sent together with it, the response of actix stays empty.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::str;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_http::{ConnectionType, HttpMessage as _, Request, Response, ResponseHead, Version};
use actix_service::{Service, ServiceFactory, apply_fn_factory};
use actix_web::HttpResponse;
use actix_web::body::{BodySize, MessageBody};
use actix_web::http::header::UPGRADE;
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::head_timeout::HeadTimeout;

/// Renders the response to a request that the app does not receive.
pub(crate) type RenderRejection = Rc<dyn Fn(StatusCode) -> HttpResponse>;

/// The responses of the app on one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct AppResponses(Rc<ResponseState>);

#[derive(Debug, Default)]
struct ResponseState {
    /// The number of requests so far.
    begun: Cell<u64>,
    in_progress: Cell<usize>,
    /// Whether a response is in progress, or a part of it was not yet written to the socket.
    is_unsent: Cell<bool>,
}

/// A response of the app that actix has not yet encoded.
struct AppResponse(AppResponses);

impl AppResponses {
    fn begin(&self) -> AppResponse {
        self.0.begun.set(self.0.begun.get() + 1);
        self.0.in_progress.set(self.0.in_progress.get() + 1);
        self.0.is_unsent.set(true);
        AppResponse(self.clone())
    }

    /// Returns the number of requests so far.
    pub(crate) fn begun(&self) -> u64 {
        self.0.begun.get()
    }

    /// Returns whether the app has a request whose response was not completely sent.
    pub(crate) fn is_unsent(&self) -> bool {
        self.0.is_unsent.get()
    }

    /// Records that everything that actix encoded was sent.
    fn record_flush(&self) {
        self.0.is_unsent.set(self.0.in_progress.get() > 0);
    }
}

impl Drop for AppResponse {
    fn drop(&mut self) {
        let in_progress = &self.0.0.in_progress;
        in_progress.set(in_progress.get().saturating_sub(1));
    }
}

/// The body of a response of the app.
pub(crate) struct TrackedBody<B> {
    body: B,
    is_omitted: bool,
    _response: Option<AppResponse>,
}

impl<B: MessageBody + Unpin> MessageBody for TrackedBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        if self.is_omitted { BodySize::None } else { self.body.size() }
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_next(context)
    }
}

/// Returns whether a body without a known length can be chunked. HTTP/1.0 has no chunks (RFC 9112 section 6.1). After a
/// request for a WebSocket or a tunnel, actix writes bodies without chunks, but its head would state them.
fn supports_chunks(request: &Request) -> bool {
    let mut protocols = request.headers().get_all(UPGRADE);
    let is_websocket = protocols.any(|it| it.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket"));
    request.version() >= Version::HTTP_11 && request.method() != Method::CONNECT && !is_websocket
}

/// Corrects a response of the app. Without chunks, the end of the connection ends a body without a known length. A 304
/// has no body (RFC 9110 section 15.4.5), and over HTTP/2 actix would state the length of an empty one.
fn correct<B: MessageBody>(
    supports_chunks: bool,
    head: &mut ResponseHead,
    body: B,
    response: Option<AppResponse>,
) -> TrackedBody<B> {
    if !supports_chunks && body.size() == BodySize::Stream && !head.upgrade() {
        head.no_chunking(true);
        head.set_connection_type(ConnectionType::Close);
    }
    TrackedBody { body, is_omitted: head.status == StatusCode::NOT_MODIFIED, _response: response }
}

/// Tracks the responses of an app, for [`Rejecting`].
pub(crate) fn track_responses<S, B>(
    app: S,
) -> impl ServiceFactory<
    Request,
    Config = S::Config,
    Response = Response<TrackedBody<B>>,
    Error = HttpResponse,
    InitError = S::InitError,
    Service: Service<Request, Future: 'static> + 'static,
    Future: 'static,
>
where
    S: ServiceFactory<
            Request,
            Response = Response<B>,
            Error = HttpResponse,
            Service: Service<Request, Future: 'static> + 'static,
            Future: 'static,
        > + 'static,
    B: MessageBody + Unpin + 'static,
{
    apply_fn_factory(app, |request: Request, app: &S::Service| {
        let response = request.conn_data::<AppResponses>().map(AppResponses::begin);
        let supports_chunks = supports_chunks(&request);
        let served = app.call(request);
        async move {
            match served.await {
                Ok(served) => Ok(served.map_body(|head, body| correct(supports_chunks, head, body, response))),
                Err(failed) => Err(failed
                    .map_body(|head, body| correct(supports_chunks, head, body, response))
                    .map_into_boxed_body()),
            }
        }
    })
}

/// A connection that replaces the responses of actix itself. It fails if the head of a request arrives too slowly and
/// actix does not respond to it, because the head is not the first one.
pub(crate) struct Rejecting<T> {
    stream: T,
    responses: AppResponses,
    head_timeout: HeadTimeout,
    /// `None` on a connection with HTTP/2, whose frames may contain any bytes.
    render: Option<RenderRejection>,
    /// The rest of a response that is being written in place of one of actix.
    replacement: Option<Bytes>,
}

impl<T> Rejecting<T> {
    pub(crate) fn new(stream: T, render: Option<RenderRejection>, keep_alive: Duration) -> Self {
        let head_timeout = HeadTimeout::new(keep_alive);
        Self { stream, responses: AppResponses::default(), head_timeout, render, replacement: None }
    }

    pub(crate) const fn stream(&self) -> &T {
        &self.stream
    }

    /// Returns the responses, which are part of the data of the connection.
    pub(crate) fn responses(&self) -> AppResponses {
        self.responses.clone()
    }
}

impl<T: fmt::Debug> fmt::Debug for Rejecting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rejecting").field(&self.stream).finish()
    }
}

/// Returns the response to send in place of a response of actix. Returns `None` for anything else that actix writes itself.
fn replace(written: &[u8], render: &dyn Fn(StatusCode) -> HttpResponse) -> Option<Bytes> {
    let text = str::from_utf8(written).ok()?;
    let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let (status_line, headers) = text.split_once("\r\ncontent-length: 0\r\n")?;
    let (head, body) = render(status).into_parts();
    let body = body.try_into_bytes().ok()?;
    let length = body.len().to_string();
    let date = headers.lines().find_map(|line| line.strip_prefix("date: "));
    let own = [("connection", "close"), ("content-length", &length)].into_iter().chain(date.map(|date| ("date", date)));
    let own = own.map(|(name, value)| (name, value.as_bytes()));
    let mut response = format!("{status_line}\r\n").into_bytes();
    for (name, value) in own.chain(head.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()))) {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            response.extend_from_slice(part);
        }
    }
    response.extend_from_slice(b"\r\n");
    response.extend_from_slice(&body);
    Some(response.into())
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rejecting<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(render) = &this.render
            && this.replacement.is_none()
            && !this.responses.is_unsent()
        {
            this.replacement = replace(bytes, &**render);
        }
        let Some(replacement) = &mut this.replacement else {
            return Pin::new(&mut this.stream).poll_write(context, bytes);
        };
        while !replacement.is_empty() {
            let count = ready!(Pin::new(&mut this.stream).poll_write(context, replacement))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            drop(replacement.split_to(count));
        }
        this.replacement = None;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // actix writes slices only over HTTP/2.
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.responses.record_flush();
        if this.render.is_some() {
            this.head_timeout.on_flushed(context, &this.responses);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rejecting<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        if this.render.is_none() {
            return polled;
        }
        if polled.is_ready() {
            if buffer.filled().len() > before {
                this.head_timeout.on_received(&this.responses);
            }
            return polled;
        }
        ready!(this.head_timeout.poll(context, &this.responses));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;

    const KEEP_ALIVE: Duration = Duration::from_secs(75);

    const EMPTY: &str =
        "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\ndate: Sun, 29 Nov 2026 01:00:00 GMT\r\n\r\n";
    const RENDERED: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 8\r\n\
        date: Sun, 29 Nov 2026 01:00:00 GMT\r\nx-own: 1\r\n\r\ntoo slow";

    #[tokio::test]
    async fn only_responses_of_actix_itself_are_replaced() {
        // The client receives one byte at a time.
        let (stream, mut client) = duplex(1);
        let received = tokio::spawn(async move {
            let mut received = String::new();
            client.read_to_string(&mut received).await.map(|_| received)
        });
        let render = |status| HttpResponse::build(status).insert_header(("x-own", "1")).body("too slow");
        let mut connection = Rejecting::new(stream, Some(Rc::new(render)), KEEP_ALIVE);
        // A body of the app may have any content.
        let response = connection.responses().begin();
        connection.write_all(EMPTY.as_bytes()).await.unwrap();
        connection.flush().await.unwrap();
        connection.write_all(EMPTY.as_bytes()).await.unwrap();
        drop(response);
        connection.write_all(EMPTY.as_bytes()).await.unwrap();
        connection.flush().await.unwrap();
        connection.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        connection.write_all(EMPTY.as_bytes()).await.unwrap();
        drop(connection);
        let expected = [EMPTY, EMPTY, EMPTY, "HTTP/1.1 100 Continue\r\n\r\n", RENDERED].concat();
        assert_eq!(received.await.unwrap().unwrap(), expected);
    }

    #[tokio::test]
    async fn frames_of_http_2_are_not_replaced() {
        let (stream, mut client) = duplex(EMPTY.len());
        let mut connection = Rejecting::new(stream, None, KEEP_ALIVE);
        connection.write_all(EMPTY.as_bytes()).await.unwrap();
        drop(connection);
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, EMPTY);
    }

    #[tokio::test(start_paused = true)]
    async fn later_head_must_arrive_within_the_timeout() {
        let (stream, mut client) = duplex(64);
        let mut connection = Rejecting::new(stream, Some(Rc::new(HttpResponse::new)), KEEP_ALIVE);
        // Requests that are served immediately.
        for _ in 0..3 {
            client.write_all(b"head").await.unwrap();
            assert_eq!(connection.read(&mut [0; 64]).await.unwrap(), 4);
            assert!(timeout(Duration::from_secs(4), connection.read(&mut [0])).await.is_err());
            drop(connection.responses().begin());
            connection.flush().await.unwrap();
        }
        // A request may take any time.
        let response = connection.responses().begin();
        client.write_all(b"body").await.unwrap();
        assert_eq!(connection.read(&mut [0; 64]).await.unwrap(), 4);
        assert!(timeout(10 * KEEP_ALIVE, connection.read(&mut [0])).await.is_err());
        drop(response);
        connection.flush().await.unwrap();
        assert!(timeout(KEEP_ALIVE, connection.read(&mut [0])).await.is_err());
        for _ in 0..2 {
            client.write_all(b"G").await.unwrap();
            assert_eq!(connection.read(&mut [0; 64]).await.unwrap(), 1);
            sleep(Duration::from_secs(2)).await;
        }
        let began = tokio::time::Instant::now();
        assert_eq!(connection.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn time_of_the_next_head_begins_when_the_response_was_sent() {
        let (stream, mut client) = duplex(4);
        let mut connection = Rejecting::new(BufWriter::new(stream), Some(Rc::new(HttpResponse::new)), KEEP_ALIVE);
        drop(connection.responses().begin());
        connection.write_all(b"response").await.unwrap();
        // The client reads nothing for a while.
        assert!(timeout(KEEP_ALIVE, connection.flush()).await.is_err());
        assert!(timeout(10 * KEEP_ALIVE, connection.read(&mut [0])).await.is_err());
        let mut received = [0; 8];
        let (flushed, read) = tokio::join!(connection.flush(), client.read_exact(&mut received));
        assert!(flushed.is_ok() && read.is_ok());
        assert_eq!(&received, b"response");
        assert!(timeout(KEEP_ALIVE, connection.read(&mut [0])).await.is_err());
        assert_eq!(connection.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn flush_wakes_the_task_at_the_end_of_the_time() {
        let (stream, _client) = duplex(64);
        let mut connection = Rejecting::new(stream, Some(Rc::new(HttpResponse::new)), KEEP_ALIVE);
        drop(connection.responses().begin());
        let mut is_flushed = false;
        let ended = poll_fn(|context| {
            let connection = Pin::new(&mut connection);
            if is_flushed {
                return connection.poll_read(context, &mut ReadBuf::new(&mut [0]));
            }
            is_flushed = true;
            assert!(connection.poll_flush(context).is_ready());
            Poll::Pending
        });
        let ended = timeout(2 * KEEP_ALIVE, ended).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_ends() {
        let (stream, _client) = duplex(64);
        let mut connection = Rejecting::new(stream, Some(Rc::new(HttpResponse::new)), KEEP_ALIVE);
        assert!(timeout(KEEP_ALIVE, connection.read(&mut [0])).await.is_err());
        assert_eq!(connection.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
