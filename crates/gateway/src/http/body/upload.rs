//! A streamed body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, web};
use futures_util::{Stream, StreamExt as _};
use kernel::Code;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::read::{DEFAULT_LIMIT, expect_content_type};
use crate::http::{Describe, Extract, Operation};
use crate::problem::Problem;
use crate::protocol;

/// The limit of concurrent uploads. Each occupies a thread while it is read.
const MAX_UPLOADS: usize = 32;

/// The timeout of a whole upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// The longest wait for the next bytes of an upload.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A streamed body of one content type. It holds an upload permit, so that slow uploads cannot block other requests.
pub struct Upload(Payload, OwnedSemaphorePermit);

impl Describe for Upload {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string", "format": "binary" });
        let body = json!({ "required": true, "content": { "application/gzip": { "schema": schema } } });
        // The reader limits the size of the stream.
        operation.body(DEFAULT_LIMIT, body);
        operation.long = true;
        operation.codes(&[&Code::BAD_REQUEST, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl Extract for Upload {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        expect_content_type(request, "application/gzip")?;
        Self::acquire(request, payload, 1).await
    }
}

impl Upload {
    /// Acquires this many upload permits.
    pub(super) async fn acquire(request: &HttpRequest, payload: &mut Payload, permits: u32) -> Result<Self, Problem> {
        let semaphore = web::Data::<UploadPermits>::extract(request, payload).await?.0.clone();
        let busy = |_| Problem::new(&Code::UNAVAILABLE, "too many concurrent uploads; try again in a moment");
        Ok(Self(payload.take(), semaphore.try_acquire_many_owned(permits).map_err(busy)?))
    }

    /// Returns the bytes. The stream ends with an error if the body stalls or exceeds the upload timeout.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>> + Unpin {
        let deadline = Instant::now() + UPLOAD_TIMEOUT;
        TimedStream { body: self.0, timer: Box::pin(tokio::time::sleep(IDLE_TIMEOUT)), deadline, _permit: self.1 }
    }
}

/// The permits of all uploads.
#[derive(Debug)]
pub(crate) struct UploadPermits(Arc<Semaphore>);

impl Default for UploadPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_UPLOADS)))
    }
}

struct TimedStream {
    body: Payload,
    timer: Pin<Box<tokio::time::Sleep>>,
    deadline: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Stream for TimedStream {
    type Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let now = Instant::now();
        if now < self.deadline
            && let Poll::Ready(chunk) = self.body.poll_next_unpin(context)
        {
            let next = self.deadline.min(now + IDLE_TIMEOUT);
            self.timer.as_mut().reset(next);
            return Poll::Ready(chunk.map(|chunk| chunk.map_err(|error| error.to_string().into())));
        }
        std::task::ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Some(Err("the upload stalled or exceeded its timeout".into())))
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upload(…)")
    }
}
