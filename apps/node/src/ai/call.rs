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
use uuid::Uuid;

use super::event_stream::{EventSplitter, data};
use super::journal::CallState;
use super::meter::Meter;
use super::upstream::{Upstream, failed};
use super::usage::{estimate, output_bytes, reported, tokens_of};
use super::{AiMetrics, Result};

/// The longest duration of a call, also if its upstream keeps sending single bytes.
const MAX_DURATION: Duration = Duration::from_secs(30 * 60);
/// The longest response that is not a stream.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The events that wait for a slow worker. The upstream then waits too.
const MAX_WAITING_EVENTS: usize = 32;
/// How often the journal records the progress of a stream.
const RECORD_PERIOD: Duration = Duration::from_secs(1);
/// The data of the last event of a stream.
const DONE: &str = "[DONE]";

/// The response of a call.
pub enum Completion {
    /// The upstream's response.
    Whole(Bytes),
    /// The upstream's events, as they arrive. An error ends a stream that the upstream did not complete.
    Stream(mpsc::Receiver<std::result::Result<Bytes, Interrupted>>),
}

/// The upstream did not complete a stream.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the upstream of the AI models ended the stream early")]
pub struct Interrupted;

/// A call in progress. It must be ended.
pub struct Call {
    id: Uuid,
    input_tokens: u32,
    context_tokens: u32,
    deadline: Instant,
    meter: Arc<Meter>,
    metrics: AiMetrics,
    /// The estimated output so far, for the reports of open calls.
    output_tokens: Arc<AtomicU32>,
    output_bytes: usize,
    usage: Option<AiUsage>,
    stream: Option<EventStream>,
}

/// The stream of a call.
struct EventStream {
    response: Response,
    splitter: EventSplitter,
    receiver: mpsc::Sender<std::result::Result<Bytes, Interrupted>>,
    /// Whether the code wants the event with the usage.
    includes_usage: bool,
}

/// An event of a stream.
struct Event {
    bytes: Bytes,
    /// Whether it is the last one.
    is_done: bool,
    /// Whether it only has the usage, which the code did not ask for.
    is_hidden: bool,
}

impl Call {
    pub fn new(id: Uuid, input_tokens: u32, context_tokens: u32, meter: Arc<Meter>, metrics: AiMetrics) -> Self {
        let output_tokens = meter.open(id);
        Self {
            id,
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

    /// Waits for a whole response, also if the worker is gone: the upstream charges for it.
    pub async fn complete(self, upstream: &Upstream, body: Vec<u8>) -> Result<Completion> {
        let whole = async {
            let response = upstream.send(body, "application/json").await?;
            let body = read(response).await?;
            let parsed: Value = serde_json::from_slice(&body).map_err(|_| failed("a response that is not JSON"))?;
            let choices = parsed.get("choices").filter(|choices| choices.is_array());
            let bytes = output_bytes(choices.ok_or_else(|| failed("a response without choices"))?, "message");
            let usage = parsed.get("usage").and_then(|usage| reported(usage, self.context_tokens, bytes));
            Ok((body, usage.unwrap_or_else(|| estimate(self.input_tokens, bytes, self.context_tokens))))
        };
        match timeout_at(self.deadline, whole).await.unwrap_or_else(|_| Err(failed("the call took too long"))) {
            Ok((body, usage)) => {
                self.end(Some(usage)).await;
                Ok(Completion::Whole(body))
            }
            Err(error) => {
                self.end(None).await;
                Err(error)
            }
        }
    }

    /// Opens a stream, and waits for its first event.
    pub async fn open_stream(
        mut self,
        upstream: &Upstream,
        body: Vec<u8>,
        includes_usage: bool,
    ) -> Result<(Completion, Option<Self>)> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
        let deadline = self.deadline;
        let open = async {
            let response = upstream.send(body, "text/event-stream").await?;
            self.stream =
                Some(EventStream { response, splitter: EventSplitter::default(), receiver: sender, includes_usage });
            self.next_event().await?.filter(|event| !event.is_done).ok_or_else(|| failed("a stream without an event"))
        };
        let first = timeout_at(deadline, open).await.unwrap_or_else(|_| Err(failed("the call took too long")));
        match first {
            Ok(first) => {
                if !self.send(first).await {
                    self.end_with_estimate().await;
                    return Ok((Completion::Stream(receiver), None));
                }
                Ok((Completion::Stream(receiver), Some(self)))
            }
            Err(error) => {
                self.end(None).await;
                Err(error)
            }
        }
    }

    /// Passes on the events of a stream, until it ends or the worker is gone. Then settles the call.
    pub async fn stream(mut self) {
        let Some(receiver) = self.stream.as_ref().map(|stream| stream.receiver.clone()) else { return };
        let deadline = self.deadline;
        let mut recorded = Instant::now();
        loop {
            let event = tokio::select! {
                event = timeout_at(deadline, self.next_event()) => event,
                // The worker or the visitor is gone.
                () = receiver.closed() => break,
            };
            match event {
                Ok(Ok(Some(event))) => {
                    let is_done = event.is_done;
                    if !self.send(event).await || is_done {
                        break;
                    }
                    if recorded.elapsed() >= RECORD_PERIOD {
                        self.record().await;
                        recorded = Instant::now();
                    }
                }
                // The stream ended without its last event, the upstream failed, or the call took too long.
                Ok(Ok(None) | Err(_)) | Err(_) => {
                    let _ = receiver.send(Err(Interrupted)).await;
                    break;
                }
            }
        }
        self.end_with_estimate().await;
    }

    /// The next event with data; `None` at the end of the stream.
    async fn next_event(&mut self) -> Result<Option<Event>> {
        loop {
            let Some(stream) = &mut self.stream else { return Ok(None) };
            while let Some(bytes) = stream.splitter.next().map_err(|_| failed("an event is too long"))? {
                let Some(data) = data(&bytes) else { continue };
                if data == DONE {
                    return Ok(Some(Event { bytes, is_done: true, is_hidden: false }));
                }
                let parsed: Value = serde_json::from_str(&data).map_err(|_| failed("an event that is not JSON"))?;
                let choices = parsed.get("choices").filter(|choices| choices.is_array());
                let choices = choices.ok_or_else(|| failed("an event without choices"))?;
                self.output_bytes += output_bytes(choices, "delta");
                self.output_tokens.store(tokens_of(self.output_bytes), Ordering::Relaxed);
                let usage = parsed.get("usage").filter(|usage| !usage.is_null());
                if let Some(usage) = usage {
                    self.usage = reported(usage, self.context_tokens, self.output_bytes);
                }
                let is_empty = choices.as_array().is_some_and(Vec::is_empty);
                let is_hidden = is_empty && usage.is_some() && !stream.includes_usage;
                return Ok(Some(Event { bytes, is_done: false, is_hidden }));
            }
            match stream.response.chunk().await {
                Ok(Some(chunk)) => stream.splitter.push(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(failed(&error.without_url().to_string())),
            }
        }
    }

    /// Sends an event to the worker. Returns false if it is gone.
    async fn send(&self, event: Event) -> bool {
        let Some(stream) = &self.stream else { return false };
        event.is_hidden || stream.receiver.send(Ok(event.bytes)).await.is_ok()
    }

    /// Records the progress, so that the estimate after the death of the node is close.
    async fn record(&self) {
        let output_tokens = self.output_tokens.load(Ordering::Relaxed);
        let state = CallState::Sent { input_tokens: self.input_tokens, output_tokens };
        // The meter logs a failure. The previous progress then stays.
        let _ = self.meter.record(self.id, state).await;
    }

    async fn end_with_estimate(self) {
        let estimated = estimate(self.input_tokens, self.output_bytes, self.context_tokens);
        let usage = self.usage.unwrap_or(estimated);
        self.end(Some(usage)).await;
    }

    async fn end(self, usage: Option<AiUsage>) {
        if let Some(usage) = usage {
            self.metrics.add_usage(usage);
        }
        self.meter.end(self.id, usage).await;
    }
}

async fn read(mut response: Response) -> Result<Bytes> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error.without_url().to_string()))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_RESPONSE_BYTES {
            return Err(failed("a response that is too long"));
        }
    }
    Ok(body.freeze())
}
