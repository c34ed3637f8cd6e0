//! The streams of requests over HTTP/2, which the client can reset while the connection stays open.
//!
//! actix notices a reset only when the app reads the body of the request or sends a part of the response. The body of a
//! request fails after a reset, also if the app has read it to its end. So the body exists until the response is sent, and
//! each request checks its own body when the client resets any stream: a reset cannot end another request.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use actix_http::Payload;
use actix_http::error::PayloadError;
use actix_web::web::Bytes;
use futures_util::{Stream, StreamExt as _};

/// The stream of a request.
#[derive(Clone)]
pub(crate) struct RequestStream(Rc<RefCell<Body>>);

/// The body of a request, which the app reads.
pub(crate) struct StreamBody(Rc<RefCell<Body>>);

struct Body {
    payload: Payload,
    /// A chunk that [`RequestStream::is_reset`] received. The app reads it next.
    received: Option<Bytes>,
    /// The task that reads the body.
    reader: Waker,
}

impl RequestStream {
    /// Shares the body of a request with the app.
    pub(crate) fn share(payload: Payload) -> (Self, StreamBody) {
        let body = Body { payload, received: None, reader: Waker::noop().clone() };
        let body = Rc::new(RefCell::new(body));
        (Self(Rc::clone(&body)), StreamBody(body))
    }

    /// Returns whether the client reset the stream. This is not known while the app has not read the chunks before the
    /// reset, if the app dropped the body before its end arrived, and if the body ended with trailers.
    pub(crate) fn is_reset(&self) -> bool {
        let mut body = self.0.borrow_mut();
        if body.received.is_some() {
            return false;
        }
        // The body wakes only the task of the last read.
        let reader = body.reader.clone();
        match body.payload.poll_next_unpin(&mut Context::from_waker(&reader)) {
            Poll::Ready(Some(Ok(chunk))) => {
                body.received = Some(chunk);
                false
            }
            polled => matches!(polled, Poll::Ready(Some(Err(_)))),
        }
    }
}

impl fmt::Debug for RequestStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestStream").finish_non_exhaustive()
    }
}

impl Stream for StreamBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut body = self.0.borrow_mut();
        if let Some(chunk) = body.received.take() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        body.reader.clone_from(context.waker());
        body.payload.poll_next_unpin(context)
    }
}

impl Drop for StreamBody {
    /// Drops the rest of the body, so that it does not occupy the flow-control window of the connection.
    fn drop(&mut self) {
        let mut body = self.0.borrow_mut();
        let mut chunk = body.received.take();
        // An app that knows the length of the body does not read an empty chunk before the end.
        let has_ended = loop {
            if chunk.is_some_and(|chunk| !chunk.is_empty()) {
                break false;
            }
            match body.payload.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(Ok(next))) => chunk = Some(next),
                polled => break polled.is_ready(),
            }
        };
        if !has_ended {
            body.payload = Payload::None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::stream;
    use tokio::sync::mpsc;

    use super::*;

    fn share(chunks: impl Stream<Item = Result<Bytes, PayloadError>> + 'static) -> (RequestStream, StreamBody) {
        RequestStream::share(Payload::Stream { payload: Box::pin(chunks) })
    }

    #[tokio::test]
    async fn check_does_not_affect_the_app() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let (stream, mut body) = share(stream::poll_fn(move |context| receiver.poll_recv(context)));
        for chunk in ["a", "b"] {
            sender.send(Ok(Bytes::from(chunk))).unwrap();
        }
        assert!(!stream.is_reset());
        assert!(!stream.is_reset());
        assert_eq!(body.next().await.unwrap().unwrap(), "a");
        assert_eq!(body.next().await.unwrap().unwrap(), "b");
        // The app waits for a chunk.
        let (chunk, ()) = tokio::join!(body.next(), async {
            assert!(!stream.is_reset());
            sender.send(Ok(Bytes::from("c"))).unwrap();
        });
        assert_eq!(chunk.unwrap().unwrap(), "c");
        sender.send(Err(PayloadError::EncodingCorrupted)).unwrap();
        assert!(stream.is_reset());
    }

    #[test]
    fn reset_is_known_after_the_end_of_the_body() {
        for empty_chunks in 0..3 {
            let is_reset = Rc::new(Cell::new(false));
            let ended = Rc::clone(&is_reset);
            let mut chunks = vec![Bytes::new(); empty_chunks];
            let (stream, body) = share(stream::poll_fn(move |_| {
                let chunk = chunks.pop().map(Ok);
                Poll::Ready(chunk.or_else(|| ended.get().then_some(Err(PayloadError::EncodingCorrupted))))
            }));
            assert!(!stream.is_reset());
            drop(body);
            assert!(!stream.is_reset());
            is_reset.set(true);
            assert!(stream.is_reset());
        }
    }

    #[test]
    fn rest_of_a_dropped_body_is_dropped() {
        for is_checked in [false, true] {
            let exists = Rc::new(());
            let weak = Rc::downgrade(&exists);
            let chunks = stream::repeat_with(move || {
                drop(Rc::clone(&exists));
                Ok(Bytes::from("chunk"))
            });
            let (stream, body) = share(chunks);
            if is_checked {
                assert!(!stream.is_reset());
            }
            assert!(weak.upgrade().is_some());
            drop(body);
            assert!(weak.upgrade().is_none());
            assert!(!stream.is_reset());
        }
    }
}
