//! Limits on the calls of a process. Without them, worker code could keep any number of requests and responses in the
//! memory of the node, by leaving requests unfinished and responses unread.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::{BodySize, BoxBody, MessageBody, SizedStream};
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, rt};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::delivery::deliver;

/// The default number of calls of a process to a binding in flight. A call ends when its response was sent.
pub const MAX_IN_FLIGHT: usize = 128;
/// The number of further calls that may wait for a permit, so that code may begin many calls at the same time.
const MAX_WAITING: usize = 1024;
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for a whole body that is not a stream.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the rest of an unneeded body is read.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest chunk of a response. The server copies a chunk to the buffer of the connection, where it no longer
/// counts as in flight.
const MAX_CHUNK_BYTES: usize = 32 << 10;
/// The longest time in which a worker reads no chunk of a response that is in the memory of the node.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The lowest rate at which a worker must read a response in memory.
const MIN_BYTES_PER_SECOND: u64 = 64 << 10;

/// The permits for calls of a process to a binding.
pub struct CallLimit {
    accepted: Arc<Semaphore>,
    in_flight: Arc<Semaphore>,
}

/// The permit of a call, until it is dropped.
pub struct Call {
    _accepted: OwnedSemaphorePermit,
    _in_flight: OwnedSemaphorePermit,
}

/// Why a body was not read.
pub enum BodyError {
    TooLong,
    /// The sender failed, or did not finish the body in time.
    Incomplete,
}

/// A body in small chunks, and a guard that is dropped with it.
struct GuardedBody<G> {
    body: BoxBody,
    rest: Bytes,
    _guard: G,
}

/// The chunks of a body in memory, and a guard that is dropped with the body. Chunks are copies, which do not keep the
/// memory of the body. The last chunk is empty, so that the guard is kept until the last content was taken.
struct Chunks<G> {
    rest: Bytes,
    has_ended: bool,
    _guard: G,
}

impl<G> Iterator for Chunks<G> {
    type Item = Result<Bytes, Box<dyn Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let chunk = self.rest.split_to(self.rest.len().min(MAX_CHUNK_BYTES));
        self.has_ended = chunk.is_empty();
        Some(Ok(Bytes::copy_from_slice(&chunk)))
    }
}

impl CallLimit {
    pub fn new(max_in_flight: usize) -> Self {
        Self {
            accepted: Arc::new(Semaphore::new(max_in_flight + MAX_WAITING)),
            in_flight: Arc::new(Semaphore::new(max_in_flight)),
        }
    }

    /// Waits until another call may begin. Returns `None` if too many calls of the process already wait, or after
    /// [`WAIT_TIMEOUT`].
    pub async fn begin(&self) -> Option<Call> {
        let accepted = Arc::clone(&self.accepted).try_acquire_owned().ok()?;
        let in_flight = timeout(WAIT_TIMEOUT, Arc::clone(&self.in_flight).acquire_owned()).await.ok()?.ok()?;
        Some(Call { _accepted: accepted, _in_flight: in_flight })
    }
}

/// Keeps a guard until a response was sent.
pub fn guard(response: HttpResponse, guard: impl Unpin + 'static) -> HttpResponse {
    response.map_body(|_, body| GuardedBody { body, rest: Bytes::new(), _guard: guard }).map_into_boxed_body()
}

/// Returns a body, and keeps a guard of its memory until it was sent. If the worker reads nothing for
/// [`UNREAD_TIMEOUT`], or less than [`MIN_BYTES_PER_SECOND`] in total, the rest and the guard are dropped, and the body
/// ends with an error.
pub fn deliver_whole(body: Bytes, guard: impl Sized + 'static) -> BoxBody {
    let length = body.len() as u64;
    let unread: Box<dyn Error> = "the worker did not read the response".into();
    let chunks = stream::iter(Chunks { rest: body, has_ended: false, _guard: guard });
    let end = Instant::now() + UNREAD_TIMEOUT + Duration::from_secs(length / MIN_BYTES_PER_SECOND);
    let expire = move || sleep_until(end.min(Instant::now() + UNREAD_TIMEOUT));
    let (chunks, delivery) = deliver(chunks, expire, Err(unread));
    rt::spawn(delivery);
    BoxBody::new(SizedStream::new(length, chunks))
}

/// Returns the length of the body that a call announces, or `max` if the call announces none or a longer one.
pub fn announced_length(request: &HttpRequest, max: usize) -> usize {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    length.map_or(max, |length: usize| length.min(max))
}

/// Reads the body of a call.
///
/// # Errors
/// Returns an error if the body has more than `max` bytes or does not end.
pub async fn read_body(payload: &mut Payload, max: usize) -> Result<Bytes, BodyError> {
    let read = async {
        let mut body = BytesMut::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| BodyError::Incomplete)?;
            if body.len() + chunk.len() > max {
                return Err(BodyError::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    };
    timeout(BODY_TIMEOUT, read).await.unwrap_or(Err(BodyError::Incomplete))
}

/// Reads the rest of a body that the binding did not need. Otherwise, the server closes the connection, and `workerd`,
/// which still sends the body, loses the response.
pub async fn drain(payload: &mut Payload) {
    let rest = async { while let Some(Ok(_)) = payload.next().await {} };
    // After the timeout, the response may be lost.
    let _ = timeout(DRAIN_TIMEOUT, rest).await;
}

impl<G: Unpin + 'static> MessageBody for GuardedBody<G> {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_next(context)) {
                Some(Ok(chunk)) => this.rest = chunk,
                end => return Poll::Ready(end),
            }
        }
        let length = this.rest.len().min(MAX_CHUNK_BYTES);
        Poll::Ready(Some(Ok(this.rest.split_to(length))))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::task::LocalSet;
    use tokio::time::sleep;

    use super::*;

    async fn next(body: &mut BoxBody) -> Option<Result<Bytes, Box<dyn Error>>> {
        poll_fn(|context| Pin::new(&mut *body).poll_next(context)).await
    }

    #[tokio::test(start_paused = true)]
    async fn unread_response_is_dropped() {
        let test = async {
            let content = Bytes::from(vec![7_u8; 4 * MAX_CHUNK_BYTES + 1]);
            let guard = Arc::new(());
            let is_held = || Arc::strong_count(&guard) > 1;
            // A slow worker gets the whole response.
            let (mut body, mut read) = (deliver_whole(content.clone(), Arc::clone(&guard)), BytesMut::new());
            while let Some(chunk) = next(&mut body).await {
                assert!(is_held());
                read.extend_from_slice(&chunk.unwrap());
                sleep(UNREAD_TIMEOUT / 8).await;
            }
            assert!(read == content && !is_held());
            // The worker never stops to read, but is too slow.
            let (mut body, mut last) = (deliver_whole(content.clone(), Arc::clone(&guard)), None);
            while let Some(chunk) = next(&mut body).await {
                last = Some(chunk.is_ok());
                sleep(UNREAD_TIMEOUT * 3 / 4).await;
            }
            assert!(last == Some(false) && !is_held());
            let mut body = deliver_whole(content, Arc::clone(&guard));
            next(&mut body).await.unwrap().unwrap();
            assert!(is_held());
            sleep(2 * UNREAD_TIMEOUT).await;
            assert!(!is_held());
            let mut last = None;
            while let Some(chunk) = next(&mut body).await {
                last = Some(chunk.is_ok());
            }
            assert_eq!(last, Some(false));
        };
        LocalSet::new().run_until(test).await;
    }
}
