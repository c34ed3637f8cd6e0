//! The connections after their handshake, and the limits of HTTP/2, which actix leaves open.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_server::GracefulShutdownSignal;
use actix_web::HttpMessage;
use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use crate::deliveries::{Deliveries, Delivery};
use crate::frames::{FrameLimits, OpenRequest, OpenRequests};
use crate::handshake::Presented;
use crate::request_stream::RequestStream;
use crate::unread_frames::UnreadFrames;
use crate::write_timeout::WriteTimeout;

/// Browsers keep at most 100 requests of a connection open unless the server allows more.
const MAX_CONCURRENT_REQUESTS: usize = 256;
/// How long an idle connection stays open at a stop, so that the last response is sent.
const FLUSH_TIME: Duration = Duration::from_millis(500);
/// How long a connection accepts requests at a stop. The requests in progress then have at least ten seconds to finish before
/// the server cuts them off.
const ACCEPT_TIME: Duration = Duration::from_secs(15);

/// A connection after its handshake.
#[derive(Debug)]
pub struct TlsConnection {
    stream: TlsStream<WriteTimeout<TcpStream>>,
    requests: Requests,
    /// Notifies all requests when the client has reset a stream.
    resets: watch::Sender<()>,
    presented: Presented,
    write_timeout: Duration,
    /// The limits of HTTP/2, if the connection uses it.
    frames: Option<FrameLimits>,
}

/// The requests of a connection that are in progress.
#[derive(Debug, Clone)]
pub struct Requests {
    in_progress: watch::Sender<InProgress>,
    open: OpenRequests,
    unread: UnreadFrames,
    deliveries: Deliveries,
    /// Is closed with the connection: requests over HTTP/2 are tasks that actix does not end.
    resets: watch::Receiver<()>,
}

/// The requests over HTTP/2 in progress.
#[derive(Debug, Default)]
struct InProgress {
    count: usize,
    /// Whether further requests are refused, because the server stops.
    is_closed: bool,
}

/// Counts a request as in progress until it is dropped.
#[derive(Debug)]
struct Permit(watch::Sender<InProgress>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.send_modify(|requests| requests.count -= 1);
    }
}

impl TlsConnection {
    pub(crate) fn new(
        stream: TlsStream<WriteTimeout<TcpStream>>,
        is_http_2: bool,
        presented: Presented,
        write_timeout: Duration,
    ) -> Self {
        let (resets, received_resets) = watch::channel(());
        let requests = Requests::new(received_resets);
        let frames = is_http_2.then(|| FrameLimits::new(requests.open.clone(), requests.unread.clone()));
        Self { stream, requests, resets, presented, write_timeout, frames }
    }

    /// Returns the requests, which are part of the data of the connection.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Returns the certificate, which is part of the data of the connection.
    #[must_use]
    pub fn presented(&self) -> Presented {
        self.presented.clone()
    }

    /// Records a write, if it contains data of responses over HTTP/2.
    fn record_write(&mut self, polled: &Poll<io::Result<usize>>) {
        if let (Some(frames), Poll::Ready(Ok(bytes))) = (&mut self.frames, polled)
            && let Some(data) = frames.on_sent(*bytes)
        {
            self.requests.deliveries.record_write(data as u64, Instant::now());
        }
    }
}

impl Requests {
    fn new(resets: watch::Receiver<()>) -> Self {
        Self {
            in_progress: watch::Sender::default(),
            open: OpenRequests::default(),
            unread: UnreadFrames::default(),
            deliveries: Deliveries::default(),
            resets,
        }
    }

    /// Begins a request over HTTP/2.
    #[must_use]
    pub fn begin(&self, request: &impl HttpMessage) -> RequestGuard {
        let is_begun = self.in_progress.send_if_modified(|requests| {
            let is_free = requests.count < MAX_CONCURRENT_REQUESTS && !requests.is_closed;
            requests.count += usize::from(is_free);
            is_free
        });
        let permit = is_begun.then(|| Permit(self.in_progress.clone()));
        let delivery = self.deliveries.begin();
        let stream = request.extensions().get::<RequestStream>().cloned();
        let abort = Abort { stream, resets: self.resets.clone() };
        RequestGuard { abort, open: self.open.guard(), delivery, permit }
    }

    /// Returns whether a request over HTTP/2 is in progress.
    fn are_in_progress(&self) -> bool {
        self.in_progress.borrow().count > 0
    }

    /// Waits until a chunk that waits for the client from now on is stalled: the client took no data for this time, less
    /// than 1 KiB/s, or much data of other responses.
    pub async fn wait_until_stalled(self, timeout: Duration) {
        self.deliveries.wait_until_stalled(timeout).await;
    }

    pub(crate) const fn unread_frames(&self) -> &UnreadFrames {
        &self.unread
    }

    /// Waits until the server stops and the requests over HTTP/2 have ended. actix does not close such a connection at a
    /// stop.
    pub(crate) async fn drain(self, stopping: GracefulShutdownSignal) {
        stopping.notified().await;
        self.finish().await;
    }

    /// Waits until no request has been in progress for [`FLUSH_TIME`]. The client does not know that the server stops, so
    /// its requests are still accepted. After [`ACCEPT_TIME`], they are refused.
    async fn finish(self) {
        let mut requests = self.in_progress.subscribe();
        let idle = async {
            loop {
                end_of_all(&mut requests).await;
                if timeout(FLUSH_TIME, requests.changed()).await.is_err() {
                    break;
                }
            }
        };
        if timeout(ACCEPT_TIME, idle).await.is_err() {
            self.in_progress.send_modify(|requests| requests.is_closed = true);
            end_of_all(&mut requests).await;
            sleep(FLUSH_TIME).await;
        }
    }
}

/// Waits until no request is in progress.
async fn end_of_all(requests: &mut watch::Receiver<InProgress>) {
    // Fails only without a sender, and the caller has one.
    let _ = requests.wait_for(|requests| requests.count == 0).await;
}

/// The end of a request by its client.
#[derive(Debug, Clone)]
struct Abort {
    stream: Option<RequestStream>,
    resets: watch::Receiver<()>,
}

impl Abort {
    /// Waits until the client resets the stream of the request or closes the connection.
    async fn wait(mut self) {
        while self.resets.changed().await.is_ok() {
            if self.stream.as_ref().is_some_and(RequestStream::is_reset) {
                return;
            }
        }
    }
}

/// A request over HTTP/2 in progress.
#[derive(Debug)]
pub struct RequestGuard {
    abort: Abort,
    open: OpenRequest,
    delivery: Delivery,
    /// `None` if the request is refused.
    permit: Option<Permit>,
}

impl RequestGuard {
    /// Returns whether the request must be refused: the connection has too many concurrent ones, or is about to be closed.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.permit.is_none()
    }

    /// Returns the response, or `None` if the client aborts the request first.
    pub async fn respond<T>(&self, respond: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.abort.clone().wait() => None,
            response = respond => Some(response),
        }
    }

    /// Returns a body that ends when the client aborts the request. The request is in progress until the body is dropped.
    pub fn hold<B: MessageBody>(self, body: B) -> impl MessageBody<Error = B::Error> {
        let Self { abort, open, delivery, permit } = self;
        let abort = Box::pin(abort.wait().fuse());
        HeldBody { body: Box::pin(body), abort, delivery, _open: open, _permit: permit }
    }
}

/// A body that holds the permit of its request. It ends when the client aborts the request.
struct HeldBody<B, A> {
    body: Pin<Box<B>>,
    abort: Pin<Box<A>>,
    delivery: Delivery,
    _open: OpenRequest,
    _permit: Option<Permit>,
}

impl<B, A> MessageBody for HeldBody<B, A>
where
    B: MessageBody,
    A: Future<Output = ()>,
{
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        let polled = this.body.as_mut().poll_next(context);
        // actix takes the next chunk when it has sent the last one.
        let is_chunk = matches!(polled, Poll::Ready(Some(Ok(_))));
        this.delivery.set_waiting_since(is_chunk.then(Instant::now));
        match polled {
            // The rest of the body has no recipient. actix drops it when it cannot send this chunk; it would log a warning
            // if it could not send the end.
            Poll::Pending if this.abort.as_mut().poll(context).is_ready() => Poll::Ready(Some(Ok(Bytes::new()))),
            polled => polled,
        }
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The HTTP/2 implementation reads again when it has processed all complete frames.
        if this.frames.as_mut().is_some_and(FrameLimits::take_reset) {
            this.resets.send_replace(());
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        let received = buffer.filled().get(before..).unwrap_or_default();
        if let Some(frames) = &mut this.frames {
            let (now, has_requests) = (Instant::now(), this.requests.are_in_progress());
            let checked = frames.read(received, now).and_then(|()| frames.check_idle(has_requests, now));
            let checked = checked.and_then(|()| this.requests.deliveries.check(this.write_timeout, now));
            if let Err(violation) = checked {
                tracing::debug!(error = %violation, "closing a connection beyond the limits of its protocol");
                return Poll::Ready(Err(io::Error::other(violation)));
            }
        }
        polled
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.record_write(&polled);
        polled
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.record_write(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn begin(requests: &Requests) -> RequestGuard {
        requests.begin(&TestRequest::default().to_http_request())
    }

    #[tokio::test(start_paused = true)]
    async fn connection_of_a_stopping_server_is_closed_when_it_is_idle() {
        let (_resets, received_resets) = watch::channel(());
        let requests = Requests::new(received_resets);
        let first = begin(&requests);
        let finished = tokio::spawn(requests.clone().finish());
        sleep(Duration::from_secs(5)).await;
        let second = begin(&requests);
        assert!(!second.is_refused());
        drop(first);
        sleep(Duration::from_secs(1)).await;
        drop(second);
        // The response to a short request needs time to be sent, too.
        for _ in 0..3 {
            sleep(FLUSH_TIME * 4 / 5).await;
            assert!(!begin(&requests).is_refused() && !finished.is_finished());
        }
        sleep(FLUSH_TIME * 4 / 5).await;
        assert!(!finished.is_finished());
        finished.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn busy_connection_of_a_stopping_server_refuses_later_requests() {
        let (_resets, received_resets) = watch::channel(());
        let requests = Requests::new(received_resets);
        let (mut current, finished) = (begin(&requests), tokio::spawn(requests.clone().finish()));
        // A client that always has a request in progress.
        for _ in 0..14 {
            sleep(Duration::from_secs(1)).await;
            current = begin(&requests);
            assert!(!current.is_refused());
        }
        sleep(Duration::from_secs(2)).await;
        assert!(begin(&requests).is_refused() && !finished.is_finished());
        drop(current);
        finished.await.unwrap();
    }
}
