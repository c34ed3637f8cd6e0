//! Small DATA frames of request bodies over HTTP/2 that the app has not read.
//!
//! The HTTP/2 implementation keeps about 250 bytes for each DATA frame until the app takes its content. Flow control
//! counts only the content (RFC 9113 section 6.9), so that it does not limit the number of empty or small frames.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use actix_http::error::PayloadError;
use actix_http::{HttpMessage as _, Payload, Request, Version};
use actix_web::web::Bytes;
use futures_util::{Stream, StreamExt as _};

use crate::connection::Requests;
use crate::request_stream::{RequestStream, StreamBody};

/// A frame with less content is charged the difference.
const SMALL_FRAME_BYTES: usize = 256;

/// The charges of a connection for the small frames that the app has not read. Clones share them.
///
/// The last frame of a body is not charged, because the number of requests is limited.
#[derive(Debug, Clone, Default)]
pub struct UnreadFrames(Arc<Charges>);

#[derive(Debug, Default)]
struct Charges {
    bytes: AtomicUsize,
    /// The number of request bodies that the app has not dropped.
    bodies: AtomicUsize,
}

impl UnreadFrames {
    /// Charges a frame with this much content that does not end its body. Returns the sum of the charges.
    pub(crate) fn charge(&self, content: usize) -> usize {
        let charge = charge_of(content);
        self.0.bytes.fetch_add(charge, Ordering::Relaxed) + charge
    }

    fn refund(&self, charge: usize) {
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        self.0.bytes.store(bytes.saturating_sub(charge), Ordering::Relaxed);
    }

    fn begin_body(&self) {
        self.0.bodies.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a body. The frames of a dropped body are dropped with it. Their number is not known, so their charges end when
    /// no other body exists.
    fn end_body(&self) {
        if self.0.bodies.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.bytes.store(0, Ordering::Relaxed);
        }
    }
}

const fn charge_of(content: usize) -> usize {
    SMALL_FRAME_BYTES.saturating_sub(content)
}

/// The body of a request over HTTP/2. Each chunk is the content of one frame.
struct FramedBody {
    body: StreamBody,
    frames: UnreadFrames,
    /// The charge of the last chunk. It is refunded with the next chunk, because the last frame of a body has no charge.
    last_charge: usize,
}

impl Stream for FramedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let polled = this.body.poll_next_unpin(context);
        if let Poll::Ready(Some(Ok(chunk))) = &polled {
            this.frames.refund(mem::replace(&mut this.last_charge, charge_of(chunk.len())));
        }
        polled
    }
}

impl Drop for FramedBody {
    fn drop(&mut self) {
        self.frames.end_body();
    }
}

/// Refunds the charges of the frames that the app reads from the body of a request over HTTP/2. Adds its stream to the data
/// of the request.
pub(crate) fn track_frames(request: &mut Request) {
    let requests = request.conn_data::<Requests>().filter(|_| request.version() == Version::HTTP_2);
    let Some(frames) = requests.map(|requests| requests.unread_frames().clone()) else { return };
    frames.begin_body();
    let (stream, body) = RequestStream::share(request.take_payload());
    let body = FramedBody { body, frames, last_charge: 0 };
    *request.payload() = Payload::Stream { payload: Box::pin(body) };
    request.extensions_mut().insert(stream);
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn body(frames: &UnreadFrames, chunks: &[usize]) -> FramedBody {
        let chunks = chunks.iter().map(|length| Ok(Bytes::from(vec![b'x'; *length])));
        let chunks: Vec<Result<Bytes, PayloadError>> = chunks.collect();
        frames.begin_body();
        let (_, body) = RequestStream::share(Payload::Stream { payload: Box::pin(stream::iter(chunks)) });
        FramedBody { body, frames: frames.clone(), last_charge: 0 }
    }

    #[tokio::test]
    async fn frames_are_charged_until_the_app_reads_them() {
        let frames = UnreadFrames::default();
        // The app never reads this body.
        let _unread = body(&frames, &[0]);
        assert_eq!(frames.charge(0), SMALL_FRAME_BYTES);
        let mut read = body(&frames, &[1, 255, 256, 2]);
        assert_eq!(frames.charge(1), 2 * SMALL_FRAME_BYTES - 1);
        assert_eq!(frames.charge(255), 2 * SMALL_FRAME_BYTES);
        assert_eq!(frames.charge(256), 2 * SMALL_FRAME_BYTES);
        // The last frame of the body is not charged, and not refunded.
        while read.next().await.is_some() {}
        assert_eq!(frames.charge(SMALL_FRAME_BYTES), SMALL_FRAME_BYTES);
    }

    #[test]
    fn charges_end_when_no_body_is_left() {
        let frames = UnreadFrames::default();
        let bodies = [body(&frames, &[0]), body(&frames, &[0])];
        frames.charge(0);
        let [first, second] = bodies;
        drop(first);
        assert_eq!(frames.charge(0), 2 * SMALL_FRAME_BYTES);
        drop(second);
        assert_eq!(frames.charge(0), SMALL_FRAME_BYTES);
    }
}
