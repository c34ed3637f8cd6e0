//! A call that was sent to the upstream.

mod stream;
mod whole;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use protocol::AiUsage;
use tokio::time::{Instant, timeout_at};

use super::failure::Failure;
use super::journal::CallState;
use super::meter::{Meter, MeteredCall};
use super::upstream::{ResponseBody, Upstream};
use super::usage::estimate;
use super::{AiError, AiMetrics};
use crate::memory::Reservation;
use stream::Events;

pub use stream::StreamCall;
pub use whole::ResponsesMemory;

/// How often the journal records the progress of a call.
const RECORD_PERIOD: Duration = Duration::from_secs(1);
const TOO_LONG: &str = "the call took too long";

/// The response of a call.
pub enum Completion {
    /// The upstream's response, with its memory.
    Whole(Bytes, Reservation),
    /// The upstream's events, as they arrive.
    Stream(Events),
}

/// The numbers of tokens that a call is admitted with.
#[derive(Debug, Clone, Copy)]
pub struct TokenLimits {
    /// The estimated input.
    pub input: u32,
    /// The expected output.
    pub expected_output: u32,
    /// The context length of the model. A larger usage is not plausible.
    pub context: u32,
}

/// A call in progress. Every path must lead to `end`, which settles the call.
pub struct Call {
    metered: MeteredCall,
    tokens: TokenLimits,
    deadline: Instant,
    meter: Arc<Meter>,
    metrics: AiMetrics,
    /// The estimated output tokens so far, for the reports of open calls.
    output_tokens: Arc<AtomicU32>,
    output_bytes: usize,
}

impl Call {
    pub fn new(
        metered: MeteredCall,
        tokens: TokenLimits,
        max_duration: Duration,
        meter: Arc<Meter>,
        metrics: AiMetrics,
    ) -> Self {
        let output_tokens = meter.open(metered.id);
        let deadline = Instant::now() + max_duration;
        Self { metered, tokens, deadline, meter, metrics, output_tokens, output_bytes: 0 }
    }

    /// Sends the call, and waits for the head of the response.
    async fn send_upstream(
        &self,
        upstream: &Upstream,
        body: Vec<u8>,
        content_type: &'static str,
    ) -> Result<ResponseBody, Failure> {
        let response = timeout_at(self.deadline, upstream.send(body, content_type)).await;
        response.unwrap_or_else(|_| Err(Failure::timed_out(TOO_LONG)))
    }

    /// Sets the length of the output so far.
    fn set_output_bytes(&mut self, bytes: usize) {
        self.output_bytes = bytes;
        self.output_tokens.store(self.estimate().output_tokens, Ordering::Relaxed);
    }

    /// Records the progress if the previous record is a second old, so that the estimate is close if the node dies.
    async fn record_periodically(&self, recorded: &mut Instant) {
        if recorded.elapsed() < RECORD_PERIOD {
            return;
        }
        *recorded = Instant::now();
        let output_tokens = self.output_tokens.load(Ordering::Relaxed);
        let state = CallState::Sent { input_tokens: self.tokens.input, output_tokens };
        // If the write fails, the journal keeps the previous progress. The meter has logged the error.
        let _ = self.meter.record(self.metered.id, state).await;
    }

    /// Settles a call without a complete response, and returns its error.
    async fn fail(self, failure: Failure) -> AiError {
        let so_far = self.estimate();
        let (error, usage) = match failure {
            Failure::Failed(error) => (error, None),
            Failure::Interrupted(error) => (error, Some(so_far)),
            Failure::Unread(error) => {
                let output_tokens = so_far.output_tokens.max(self.tokens.expected_output);
                (error, Some(AiUsage { output_tokens, ..so_far }))
            }
            Failure::Undelivered(error) => (error, Some(AiUsage { output_tokens: 0, ..so_far })),
        };
        self.end(usage).await;
        error
    }

    fn estimate(&self) -> AiUsage {
        estimate(self.tokens.input, self.output_bytes, self.tokens.context)
    }

    async fn end(self, usage: Option<AiUsage>) {
        if let Some(usage) = usage {
            self.metrics.add_usage(usage);
        }
        self.meter.end(self.metered, usage).await;
    }
}
