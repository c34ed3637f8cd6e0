//! Clients with HTTP/1 that do not complete the head of their next request.
//!
//! actix limits the time of the first head of a connection, and the time in which a connection receives nothing. It sets no
//! limit for a later head of which it has received a part.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::listen::CLIENT_REQUEST_TIMEOUT;
use crate::rejection::AppResponses;

/// The timeout of the next head of a connection.
#[derive(Debug)]
pub(crate) struct HeadTimeout {
    keep_alive: Duration,
    /// The number of requests of the connection when the deadline was set.
    requests: u64,
    /// When the head must be complete. `None` until the last response was sent.
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl HeadTimeout {
    /// Creates the timeout of a connection that may be idle for the time of `keep_alive`.
    pub(crate) const fn new(keep_alive: Duration) -> Self {
        Self { keep_alive, requests: 0, deadline: None, timer: None }
    }

    /// Records that bytes arrived. Without an unsent response, they belong to a head.
    pub(crate) fn on_received(&mut self, responses: &AppResponses) {
        self.limit(responses, CLIENT_REQUEST_TIMEOUT);
    }

    /// Records that a response may have been sent completely. At the end of the time of the next head, the task is woken:
    /// actix does not always read after a response.
    pub(crate) fn on_flushed(&mut self, context: &mut Context<'_>, responses: &AppResponses) {
        // If the time is over, the next read fails.
        let _ = self.poll(context, responses);
    }

    /// Completes when the time of the next head is over.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, responses: &AppResponses) -> Poll<()> {
        // A part of the head may have arrived during the last response. Usually, actix closes the connection earlier.
        let Some(deadline) = self.limit(responses, self.keep_alive + CLIENT_REQUEST_TIMEOUT) else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(context));
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            // The timer was set for an earlier head. It is not reset at each request, because that costs more.
            timer.as_mut().reset(deadline);
        }
    }

    /// Sets the deadline, unless there is an earlier one for the same head. Returns it.
    fn limit(&mut self, responses: &AppResponses, timeout: Duration) -> Option<Instant> {
        let (requests, is_unsent) = (responses.begun(), responses.is_unsent());
        if is_unsent || self.requests != requests {
            (self.requests, self.deadline) = (requests, None);
        }
        if is_unsent {
            return None;
        }
        let limit = Instant::now() + timeout;
        self.deadline = Some(self.deadline.map_or(limit, |deadline| deadline.min(limit)));
        self.deadline
    }
}
