//! Responses that are streams.

use bytes::Bytes;
use protocol::AiUsage;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::{Call, Completion, TOO_LONG};
use crate::ai::Result;
use crate::ai::event_stream::{EventSplitter, data};
use crate::ai::failure::Failure;
use crate::ai::upstream::{ResponseBody, Upstream};
use crate::ai::usage::{Metered, reported};

/// The largest number of events that are buffered for a slow worker. If the buffer is full, the node stops reading from
/// the upstream.
const MAX_WAITING_EVENTS: usize = 32;
/// The data of the last event of a stream.
const DONE: &str = "[DONE]";

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

/// A call whose response is a stream. It ends with [`StreamCall::pass_events`].
pub struct StreamCall {
    call: Call,
    response: ResponseBody,
    splitter: EventSplitter,
    events: mpsc::Sender<Event>,
    /// Whether the worker code requested the event with the usage.
    includes_usage: bool,
    /// Whether an event with choices arrived. Before that, the upstream can still fail, and the call is then free.
    has_choices: bool,
    usage: Option<AiUsage>,
}

/// An event of a stream, or a comment.
struct Event {
    bytes: Bytes,
    /// Whether this is the last event of the stream.
    is_done: bool,
    /// Whether the event contains only the usage, which the worker code did not request. It is not sent to the worker.
    is_hidden: bool,
}

impl Call {
    /// Opens a stream, and waits for its first event or comment. Closes the call to the upstream if `reader` leaves
    /// before.
    pub async fn open_stream(
        self,
        upstream: &Upstream,
        body: Vec<u8>,
        includes_usage: bool,
        reader: &mut oneshot::Sender<Result<Completion>>,
    ) -> Result<(Completion, StreamCall)> {
        let response = tokio::select! {
            response = self.send_upstream(upstream, body, "text/event-stream") => response,
            () = reader.closed() => Err(Failure::abandoned()),
        };
        let response = match response {
            Ok(response) => response,
            Err(failure) => return Err(self.fail(failure).await),
        };
        let (events, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
        let splitter = EventSplitter::default();
        let deadline = self.deadline;
        let mut stream =
            StreamCall { call: self, response, splitter, events, includes_usage, has_choices: false, usage: None };
        let first = tokio::select! {
            first = timeout_at(deadline, stream.next_event()) => {
                first.unwrap_or_else(|_| Err(Failure::timed_out(TOO_LONG)))
            }
            () = reader.closed() => Err(Failure::abandoned()),
        };
        match first {
            Ok(first) => {
                // This send cannot fail or wait: the channel is empty, and its receiver exists.
                stream.send(first).await;
                Ok((Completion::Stream(Events { receiver, is_ended: false }), stream))
            }
            Err(failure) => Err(stream.call.fail(failure).await),
        }
    }
}

impl StreamCall {
    /// Sends the events of the stream to the worker, until the stream ends, the worker is gone, or the call takes too
    /// long. Settles the call before it sends the last event. So a complete response is settled with its reported usage,
    /// even if the process dies immediately afterwards.
    ///
    /// # Errors
    /// Returns an error if there was no event, only comments. The worker receives the error as the last event, because
    /// its response has begun.
    pub async fn pass_events(mut self) -> Result<()> {
        let (deadline, events) = (self.call.deadline, self.events.clone());
        let last = timeout_at(deadline, self.pass_on()).await;
        let last = last.unwrap_or_else(|_| Err(Failure::timed_out(TOO_LONG)));
        let Self { call, response, has_choices, usage, .. } = self;
        drop(response);
        let (last, ended) = match last {
            Err(failure) if !has_choices => {
                let error = call.fail(failure).await;
                (Some(Event::last(error.event())), Err(error))
            }
            // An error or an early end closes the channel without a last event. The worker code then receives an error.
            last => {
                let usage = usage.unwrap_or_else(|| call.estimate());
                call.end(Some(usage)).await;
                (last.ok(), Ok(()))
            }
        };
        if let Some(last) = last {
            // If the worker is gone, nothing waits for this event.
            if timeout_at(deadline, events.send(last)).await.is_err() {
                tracing::warn!("the worker does not read the end of a stream of an AI model");
            }
        }
        ended
    }

    /// Returns the last event of a complete stream, without sending it.
    async fn pass_on(&mut self) -> std::result::Result<Event, Failure> {
        let events = self.events.clone();
        let mut recorded = Instant::now();
        loop {
            let event = tokio::select! {
                event = self.next_event() => event?,
                // The worker or the visitor is gone.
                () = events.closed() => return Err(Failure::abandoned()),
            };
            if event.is_done {
                return Ok(event);
            }
            if !self.send(event).await {
                return Err(Failure::abandoned());
            }
            self.call.record_periodically(&mut recorded).await;
        }
    }

    /// Returns the next event or comment. A stream without its last event is an error.
    async fn next_event(&mut self) -> std::result::Result<Event, Failure> {
        loop {
            let next = self.splitter.next().map_err(|_| Failure::interrupted("an event is too long"))?;
            if let Some(bytes) = next {
                return self.read_event(bytes);
            }
            match self.response.next_chunk().await? {
                Some(chunk) => self.splitter.push(&chunk),
                None if self.has_choices => return Err(Failure::interrupted("a stream without its last event")),
                None => return Err(Failure::failed("a stream without an event")),
            }
        }
    }

    fn read_event(&mut self, bytes: Bytes) -> std::result::Result<Event, Failure> {
        // Comments are passed on, because they keep the connections to the worker and the visitor open.
        let Some(data) = data(&bytes) else { return Ok(Event::new(bytes)) };
        if data == DONE {
            return match self.has_choices {
                true => Ok(Event::last(bytes)),
                false => Err(Failure::failed("a stream without an event")),
            };
        }
        let part: Metered =
            serde_json::from_str(&data).map_err(|_| Failure::failed("an event that is not a part of a completion"))?;
        self.has_choices = true;
        self.call.set_output_bytes(self.call.output_bytes + part.delta_bytes());
        let is_hidden = part.is_empty() && part.usage.is_some() && !self.includes_usage;
        if let Some(usage) = part.usage {
            self.usage = reported(usage, self.call.tokens.context, self.call.output_bytes);
        }
        Ok(Event { is_hidden, ..Event::new(bytes) })
    }

    /// Sends an event to the worker. Returns false if the worker is gone.
    async fn send(&self, event: Event) -> bool {
        event.is_hidden || self.events.send(event).await.is_ok()
    }
}

impl Event {
    const fn new(bytes: Bytes) -> Self {
        Self { bytes, is_done: false, is_hidden: false }
    }

    const fn last(bytes: Bytes) -> Self {
        Self { bytes, is_done: true, is_hidden: false }
    }
}
