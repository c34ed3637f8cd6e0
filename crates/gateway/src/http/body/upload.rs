//! A streamed body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use futures_util::{Stream, StreamExt as _};
use kernel::{ApiError, Code};
use serde_json::json;
use tokio::time::Instant;

use super::read::{DEFAULT_LIMIT, expect_content_type};
use crate::http::upload_kind::UploadKind;
use crate::http::{Describe, Extract, Operation, guard};
use crate::problem::Problem;
use crate::protocol;

/// The timeout of a whole upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// The minimum rate of an upload and of a streamed response, in bytes per second.
pub(crate) const MIN_RATE: u32 = 16 * 1024;

/// The time at the start of an upload for which the client may be slower than [`MIN_RATE`].
const GRACE: Duration = Duration::from_secs(10);

/// The longest wait for the next bytes of an upload that has been faster than [`MIN_RATE`].
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// A streamed bundle.
#[derive(Debug)]
pub struct Upload(UploadStream);

impl Describe for Upload {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string", "format": "binary" });
        let body = json!({ "required": true, "content": { "application/gzip": { "schema": schema } } });
        // The size of the stream is limited by the reader of the bundle, not here.
        operation.body(DEFAULT_LIMIT, body);
        operation.upload(UploadKind::Bundle);
        operation.codes(&[&Code::BAD_REQUEST, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl Extract for Upload {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        expect_content_type(request, "application/gzip")?;
        Ok(Self(UploadStream::new(request, payload, UploadKind::Bundle)))
    }
}

impl Upload {
    /// Returns the bytes. The stream ends with an error if the body breaks or is too slow.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, UploadError>> + Unpin {
        self.0
    }
}

/// Returns the problem of a failed upload. The service that reads the stream cannot distinguish a timeout of the body
/// from a broken connection, so this function searches the sources of the error.
pub(crate) fn upload_problem(error: impl ApiError) -> Problem {
    let mut causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    let timeout = causes.find_map(|cause| cause.downcast_ref::<UploadError>().filter(|error| error.is_timeout()));
    match timeout.cloned() {
        Some(timeout) => timeout.into(),
        None => error.into(),
    }
}

/// The reason why the stream of an upload ended early.
#[derive(Debug, Clone)]
pub enum UploadError {
    /// The client sent fewer than 16 KiB per second.
    TooSlow,
    /// The upload took longer than its timeout.
    TooLong,
    /// The connection broke.
    Broken(String),
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSlow => {
                let rate = MIN_RATE / 1024;
                write!(f, "the body arrived more slowly than {rate} KiB per second; send it over a faster connection")
            }
            Self::TooLong => write!(f, "the body did not arrive within {} s", UPLOAD_TIMEOUT.as_secs()),
            Self::Broken(error) => write!(f, "failed to read the body: {error}"),
        }
    }
}

impl UploadError {
    fn is_timeout(&self) -> bool {
        matches!(self, Self::TooSlow | Self::TooLong)
    }
}

impl std::error::Error for UploadError {}

impl ApiError for UploadError {
    fn code(&self) -> &'static Code {
        match self {
            Self::TooSlow | Self::TooLong => &protocol::REQUEST_TIMEOUT,
            Self::Broken(_) => &Code::BAD_REQUEST,
        }
    }
}

impl From<PayloadError> for UploadError {
    fn from(error: PayloadError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// The body of an upload, with its timeouts. The rate is measured only over the time in which the server waits for the
/// client, so that a slow bundle store does not end an upload. In that time, the request holds no permit of the
/// concurrency limit. If no permit is free afterwards, the upload continues without one, because it has separate limits.
pub(super) struct UploadStream {
    request: HttpRequest,
    body: Payload,
    kind: UploadKind,
    timer: Pin<Box<tokio::time::Sleep>>,
    deadline: Instant,
    /// The time for which the server still waits for the client. Received bytes extend it, by one second for each
    /// [`MIN_RATE`] bytes.
    allowance: Duration,
    waiting_since: Option<Instant>,
    has_failed: bool,
}

impl UploadStream {
    /// Takes the body from the request.
    pub(super) fn new(request: &HttpRequest, payload: &mut Payload, kind: UploadKind) -> Self {
        let deadline = Instant::now() + UPLOAD_TIMEOUT;
        let (body, timer) = (payload.take(), Box::pin(tokio::time::sleep_until(deadline)));
        let request = request.clone();
        Self { request, body, kind, timer, deadline, allowance: GRACE, waiting_since: None, has_failed: false }
    }

    /// Begins to wait for the client, unless the server already waits. Returns since when it waits.
    fn wait(&mut self, now: Instant) -> Instant {
        *self.waiting_since.get_or_insert_with(|| {
            guard::release_permit(&self.request);
            now
        })
    }

    /// Ends the wait for the client.
    fn end_wait(&mut self, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.allowance = self.allowance.saturating_sub(now - since);
            guard::reacquire_permit(&self.request);
        }
    }

    /// Counts received bytes.
    fn receive(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let gained = Duration::from_secs(1) * bytes / MIN_RATE;
        self.allowance = (self.allowance + gained).min(MAX_SILENCE);
    }

    fn fail(&mut self, error: UploadError) -> Poll<Option<Result<Bytes, UploadError>>> {
        self.has_failed = true;
        if error.is_timeout() {
            self.kind.count_rejection("slow");
        }
        Poll::Ready(Some(Err(error)))
    }
}

impl Stream for UploadStream {
    type Item = Result<Bytes, UploadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let now = Instant::now();
        if now >= self.deadline {
            return self.fail(UploadError::TooLong);
        }
        let polled = self.body.poll_next_unpin(context);
        if polled.is_ready() {
            self.end_wait(now);
        }
        match polled {
            Poll::Ready(Some(Ok(chunk))) => {
                self.receive(chunk.len());
                Poll::Ready(Some(Ok(chunk)))
            }
            Poll::Ready(Some(Err(error))) => self.fail(error.into()),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let until = self.wait(now) + self.allowance;
                let until = until.min(self.deadline);
                self.timer.as_mut().reset(until);
                std::task::ready!(self.timer.as_mut().poll(context));
                let is_too_long = until == self.deadline;
                self.fail(if is_too_long { UploadError::TooLong } else { UploadError::TooSlow })
            }
        }
    }
}

impl fmt::Debug for UploadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UploadStream(…)")
    }
}
