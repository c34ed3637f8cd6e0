//! A call that was sent to the upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::AiUsage;
use reqwest::Response;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::event_stream::{EventSplitter, data};
use super::journal::CallState;
use super::meter::{Meter, MeteredCall};
use super::upstream::{Upstream, failed};
use super::usage::{estimate, output_bytes, reported};
use super::{AiError, AiMetrics, Result};

/// The longest duration of a call, even if its upstream keeps sending single bytes.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(30 * 60);
/// The longest response that is not a stream.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The largest number of events that are buffered for a slow worker. If the buffer is full, the node stops reading from
/// the upstream.
const MAX_WAITING_EVENTS: usize = 32;
/// How often the journal records the progress of a call.
const RECORD_PERIOD: Duration = Duration::from_secs(1);
const TOO_LONG: &str = "the call took too long";
/// The data of the last event of a stream.
const DONE: &str = "[DONE]";

/// The response of a call.
pub enum Completion {
    /// The upstream's response.
    Whole(Bytes),
    /// The upstream's events, as they arrive.
    Stream(Events),
}

/// The events of a stream.
pub struct Events {
    receiver: mpsc::Receiver<Event>,
    is_ended: bool,
}

impl Events {
    /// Returns the next event; `None` after the last one.
    ///
    /// # Errors
    /// Returns an error once if the stream ends without its last event.
    pub async fn next(&mut self) -> Option<std::result::Result<Bytes, Interrupted>> {
        if self.is_ended {
            return None;
        }
        let event = self.receiver.recv().await;
        self.is_ended = event.as_ref().is_none_or(|event| event.is_done);
        Some(event.map(|event| event.bytes).ok_or(Interrupted))
    }
}

/// The stream ended early: the upstream did not complete it, or the worker code did not read it before the call's
/// deadline.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the stream of the AI model ended early")]
pub struct Interrupted;

/// Why there is no whole response, or no first event.
enum Failure {
    /// The upstream failed, or sent something else than a completion: the call is free.
    Failed(AiError),
    /// The response began and did not end. The upstream charges for it, so the call is charged with an estimate.
    Interrupted(AiError),
}

impl Failure {
    fn failed(reason: &str) -> Self {
        Self::Failed(failed(reason))
    }

    fn interrupted(reason: &str) -> Self {
        Self::Interrupted(failed(reason))
    }
}

/// A call in progress. Every path must lead to `end`, which settles the call.
pub struct Call {
    metered: MeteredCall,
    input_tokens: u32,
    context_tokens: u32,
    deadline: Instant,
    meter: Arc<Meter>,
    metrics: AiMetrics,
    /// The estimated output tokens so far, for the reports of open calls.
    output_tokens: Arc<AtomicU32>,
    output_bytes: usize,
    usage: Option<AiUsage>,
    stream: Option<EventStream>,
}

/// The stream of a call.
struct EventStream {
    response: Response,
    splitter: EventSplitter,
    receiver: mpsc::Sender<Event>,
    /// Whether the worker code requested the event with the usage.
    includes_usage: bool,
}

/// An event of a stream.
struct Event {
    bytes: Bytes,
    /// Whether this is the last event of the stream.
    is_done: bool,
    /// Whether the event contains only the usage, which the worker code did not request. It is not sent to the worker.
    is_hidden: bool,
}

impl Call {
    pub fn new(
        metered: MeteredCall,
        input_tokens: u32,
        context_tokens: u32,
        meter: Arc<Meter>,
        metrics: AiMetrics,
    ) -> Self {
        let output_tokens = meter.open(metered.id);
        Self {
            metered,
            input_tokens,
            context_tokens,
            deadline: Instant::now() + MAX_DURATION,
            meter,
            metrics,
            output_tokens,
            output_bytes: 0,
            usage: None,
            stream: None,
        }
    }

    /// Waits for the whole response, even if the worker is gone, because the upstream charges for it.
    pub async fn complete(mut self, upstream: &Upstream, body: Vec<u8>) -> Result<Completion> {
        match self.read_whole(upstream, body).await {
            Ok((body, usage)) => {
                self.end(Some(usage)).await;
                Ok(Completion::Whole(body))
            }
            Err(failure) => Err(self.fail(failure).await),
        }
    }

    async fn read_whole(
        &mut self,
        upstream: &Upstream,
        body: Vec<u8>,
    ) -> std::result::Result<(Bytes, AiUsage), Failure> {
        let response = self.send_upstream(upstream, body, "application/json").await?;
        let body = timeout_at(self.deadline, self.read_body(response));
        let body = body.await.unwrap_or_else(|_| Err(Failure::interrupted(TOO_LONG)))?;
        let parsed: Value =
            serde_json::from_slice(&body).map_err(|_| Failure::failed("a response that is not JSON"))?;
        let choices = parsed.get("choices").filter(|choices| choices.is_array());
        let choices = choices.ok_or_else(|| Failure::failed("a response without choices"))?;
        self.output_bytes = output_bytes(choices, "message");
        let usage = parsed.get("usage").and_then(|usage| reported(usage, self.context_tokens, self.output_bytes));
        Ok((body, usage.unwrap_or_else(|| self.estimate())))
    }

    async fn read_body(&mut self, mut response: Response) -> std::result::Result<Bytes, Failure> {
        let (mut body, mut recorded) = (BytesMut::new(), Instant::now());
        while let Some(chunk) = next_chunk(&mut response).await? {
            body.extend_from_slice(&chunk);
            self.output_bytes = body.len();
            if body.len() > MAX_RESPONSE_BYTES {
                return Err(Failure::interrupted("a response that is too long"));
            }
            self.output_tokens.store(self.estimate().output_tokens, Ordering::Relaxed);
            self.record_periodically(&mut recorded).await;
        }
        Ok(body.freeze())
    }

    /// Opens a stream, and waits for its first event.
    pub async fn open_stream(
        mut self,
        upstream: &Upstream,
        body: Vec<u8>,
        includes_usage: bool,
    ) -> Result<(Completion, Self)> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
        let completion = Completion::Stream(Events { receiver, is_ended: false });
        match self.first_event(upstream, body, sender, includes_usage).await {
            // This send cannot fail or wait: the channel is empty, and `completion` contains its receiver.
            Ok(first) => match self.send(first).await {
                true => Ok((completion, self)),
                false => Err(self.fail(Failure::interrupted("its events cannot be passed on")).await),
            },
            Err(failure) => Err(self.fail(failure).await),
        }
    }

    async fn first_event(
        &mut self,
        upstream: &Upstream,
        body: Vec<u8>,
        receiver: mpsc::Sender<Event>,
        includes_usage: bool,
    ) -> std::result::Result<Event, Failure> {
        let response = self.send_upstream(upstream, body, "text/event-stream").await?;
        self.stream = Some(EventStream { response, splitter: EventSplitter::default(), receiver, includes_usage });
        let first = timeout_at(self.deadline, self.next_event()).await;
        let first = first.unwrap_or_else(|_| Err(Failure::interrupted(TOO_LONG)))?;
        first.filter(|event| !event.is_done).ok_or_else(|| Failure::failed("a stream without an event"))
    }

    async fn send_upstream(
        &self,
        upstream: &Upstream,
        body: Vec<u8>,
        content_type: &'static str,
    ) -> std::result::Result<Response, Failure> {
        let response = timeout_at(self.deadline, upstream.send(body, content_type)).await;
        response.unwrap_or_else(|_| Err(failed(TOO_LONG))).map_err(Failure::Failed)
    }

    /// Sends the events of a stream to the worker, until the stream ends, the worker is gone, or the call takes too
    /// long. Settles the call before it sends the last event. So a complete response is settled with its reported usage,
    /// even if the process dies immediately afterwards.
    pub async fn stream(mut self) {
        let (deadline, receiver) = (self.deadline, self.receiver());
        let last = timeout_at(deadline, self.pass_on()).await;
        let last = last.unwrap_or_else(|_| {
            failed(TOO_LONG);
            None
        });
        self.end_with_estimate().await;
        if let (Some(last), Some(receiver)) = (last, receiver) {
            // If the worker is gone, nothing waits for this event.
            if timeout_at(deadline, receiver.send(last)).await.is_err() {
                tracing::warn!("the worker does not read the end of a stream of an AI model");
            }
        }
    }

    /// Returns the last event of a complete stream, without sending it.
    async fn pass_on(&mut self) -> Option<Event> {
        let receiver = self.receiver()?;
        let mut recorded = Instant::now();
        loop {
            let event = tokio::select! {
                event = self.next_event() => event,
                // The worker or the visitor is gone.
                () = receiver.closed() => return None,
            };
            // An error or an early end closes the channel without a last event. The worker code then receives an error.
            let Ok(Some(event)) = event else { return None };
            if event.is_done {
                return Some(event);
            }
            if !self.send(event).await {
                return None;
            }
            self.record_periodically(&mut recorded).await;
        }
    }

    fn receiver(&self) -> Option<mpsc::Sender<Event>> {
        self.stream.as_ref().map(|stream| stream.receiver.clone())
    }

    /// Returns the next event with data; `None` at the end of the stream.
    async fn next_event(&mut self) -> std::result::Result<Option<Event>, Failure> {
        loop {
            let Some(stream) = &mut self.stream else { return Ok(None) };
            while let Some(bytes) = stream.splitter.next().map_err(|_| Failure::interrupted("an event is too long"))? {
                let Some(data) = data(&bytes) else { continue };
                if data == DONE {
                    return Ok(Some(Event { bytes, is_done: true, is_hidden: false }));
                }
                let parsed: Value =
                    serde_json::from_str(&data).map_err(|_| Failure::failed("an event that is not JSON"))?;
                let choices = parsed.get("choices").filter(|choices| choices.is_array());
                let choices = choices.ok_or_else(|| Failure::failed("an event without choices"))?;
                self.output_bytes += output_bytes(choices, "delta");
                let so_far = estimate(self.input_tokens, self.output_bytes, self.context_tokens);
                self.output_tokens.store(so_far.output_tokens, Ordering::Relaxed);
                let usage = parsed.get("usage").filter(|usage| !usage.is_null());
                if let Some(usage) = usage {
                    self.usage = reported(usage, self.context_tokens, self.output_bytes);
                }
                let is_empty = choices.as_array().is_some_and(Vec::is_empty);
                let is_hidden = is_empty && usage.is_some() && !stream.includes_usage;
                return Ok(Some(Event { bytes, is_done: false, is_hidden }));
            }
            match next_chunk(&mut stream.response).await? {
                Some(chunk) => stream.splitter.push(&chunk),
                None => return Ok(None),
            }
        }
    }

    /// Sends an event to the worker. Returns false if the worker is gone.
    async fn send(&self, event: Event) -> bool {
        let Some(stream) = &self.stream else { return false };
        event.is_hidden || stream.receiver.send(event).await.is_ok()
    }

    /// Records the progress if the previous record is a second old, so that the estimate is close if the node dies.
    async fn record_periodically(&self, recorded: &mut Instant) {
        if recorded.elapsed() < RECORD_PERIOD {
            return;
        }
        *recorded = Instant::now();
        let output_tokens = self.output_tokens.load(Ordering::Relaxed);
        let state = CallState::Sent { input_tokens: self.input_tokens, output_tokens };
        // If the write fails, the journal keeps the previous progress. The meter has logged the error.
        let _ = self.meter.record(self.metered.id, state).await;
    }

    /// Settles a call without a response, and returns its error.
    async fn fail(self, failure: Failure) -> AiError {
        match failure {
            Failure::Failed(error) => {
                self.end(None).await;
                error
            }
            Failure::Interrupted(error) => {
                self.end_with_estimate().await;
                error
            }
        }
    }

    fn estimate(&self) -> AiUsage {
        estimate(self.input_tokens, self.output_bytes, self.context_tokens)
    }

    async fn end_with_estimate(self) {
        let usage = self.usage.unwrap_or_else(|| self.estimate());
        self.end(Some(usage)).await;
    }

    async fn end(self, usage: Option<AiUsage>) {
        if let Some(usage) = usage {
            self.metrics.add_usage(usage);
        }
        self.meter.end(self.metered, usage).await;
    }
}

async fn next_chunk(response: &mut Response) -> std::result::Result<Option<Bytes>, Failure> {
    response.chunk().await.map_err(|error| Failure::interrupted(&error.without_url().to_string()))
}
