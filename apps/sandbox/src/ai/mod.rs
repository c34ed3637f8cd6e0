//! The upstream of AI models: OpenAI's chat completions, and a page that shows the calls.
//!
//! The model repeats the last message of the user. The number of its tokens is the number of bytes of the texts divided
//! by four, rounded up.

mod page;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::http::{self, Request, Response};
use crate::recent::Recent;

/// The path of the API, with its version.
pub const AI_PATH: &str = "/openai/v1";
/// The API key of the node.
pub const AI_KEY: &str = "sk-sandbox";

/// The pages are below this path.
const PAGES: &str = "/ai";
/// The maximum number of calls that the page shows.
pub(crate) const MAX_SHOWN: usize = 50;
/// The number of bytes of the answer that each event of a stream contains.
const EVENT_BYTES: usize = 12;
const TRICKLE: Duration = Duration::from_millis(200);
/// The time that the server has to send the previous events before a fault cuts the connection.
const FLUSH: Duration = Duration::from_millis(50);

/// A fault that affects all following calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AiFault {
    /// Responds with this status and an error in OpenAI's shape.
    Status(u16),
    /// Responds with this status and an error in another shape.
    OtherError(u16),
    /// Responds with this status and a page.
    ErrorPage(u16),
    /// Responds with 200 and a page.
    Html,
    /// Responds with 200 and JSON without choices.
    WrongShape,
    /// Redirects to another server.
    Redirect,
    /// Does not respond while the fault lasts.
    Hang,
    /// Responds when the fault is replaced or removed.
    Delay,
    /// Sends a comment before the first event of a stream, and then waits until the fault is replaced or removed. If
    /// [`AiFault::WrongShape`] replaces it, an error follows instead of the events.
    Comment,
    /// Closes the connection after this number of events of a stream, or in the middle of any other response.
    Cut(usize),
    /// Pauses a stream after this number of events, until the fault is replaced or removed.
    Pause(usize),
    /// Sends a byte at a time.
    Trickle,
    /// Responds with 200 and lists of this many numbers as the choices and as the usage, without events.
    LongLists(usize),
    /// Responds with an answer of this size in bytes.
    LongAnswer(usize),
    /// Reports no usage.
    NoUsage,
    /// Reports a negative usage.
    NegativeUsage,
    /// Reports more output than any model can produce.
    HugeUsage,
}

/// The faults with their names on the page.
const FAULTS: [(&str, Option<AiFault>); 15] = [
    ("none", None),
    ("400", Some(AiFault::Status(400))),
    ("401", Some(AiFault::Status(401))),
    ("429", Some(AiFault::Status(429))),
    ("503", Some(AiFault::Status(503))),
    ("html", Some(AiFault::Html)),
    ("wrong shape", Some(AiFault::WrongShape)),
    ("redirect", Some(AiFault::Redirect)),
    ("hang", Some(AiFault::Hang)),
    ("delay", Some(AiFault::Delay)),
    ("comment", Some(AiFault::Comment)),
    ("cut", Some(AiFault::Cut(3))),
    ("trickle", Some(AiFault::Trickle)),
    ("no usage", Some(AiFault::NoUsage)),
    ("huge usage", Some(AiFault::HugeUsage)),
];

/// A call as it was received.
#[derive(Debug, Clone)]
struct ReceivedCall {
    body: Value,
    /// The outcome: `complete`, `aborted` by the client, or the name of the fault.
    outcome: &'static str,
}

/// The upstream behind a listener.
#[derive(Debug)]
pub(crate) struct Ai {
    calls: Arc<Mutex<Recent<ReceivedCall>>>,
    fault: watch::Sender<Option<AiFault>>,
}

impl Ai {
    /// Creates the upstream, which keeps this number of calls.
    pub fn new(max_calls: usize) -> Self {
        Self { calls: Arc::new(Mutex::new(Recent::new(max_calls))), fault: watch::Sender::new(None) }
    }

    /// Returns whether a request is for the API or the page.
    pub fn serves(path: &str) -> bool {
        path == PAGES || path.strip_prefix(AI_PATH).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Responds to a request. Returns `None` to close the connection without a response.
    pub async fn respond(&self, request: &Request) -> Option<Response> {
        let Some(path) = request.path.strip_prefix(AI_PATH) else { return Some(self.page(request)) };
        if request.header(AUTHORIZATION) != format!("Bearer {AI_KEY}") {
            return Some(error(401, "Incorrect API key provided.", "invalid_api_key"));
        }
        match (request.method.as_str(), path) {
            ("GET", "/models") => Some(Response::json(&json!({ "object": "list", "data": [] }))),
            ("POST", "/chat/completions") => self.complete(request).await,
            _ => Some(error(404, "Unknown request URL.", "unknown_url")),
        }
    }

    async fn complete(&self, request: &Request) -> Option<Response> {
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
            return Some(error(400, "The body is not JSON.", "invalid_json"));
        };
        let fault = *self.fault.borrow();
        let index = self.calls().push(ReceivedCall { body: body.clone(), outcome: "in progress" });
        if body["messages"].as_array().is_none_or(Vec::is_empty) {
            self.set_outcome(index, "invalid");
            return Some(error_of(Some("messages"), 400, "[] is too short - 'messages'", "empty_array"));
        }
        if fault == Some(AiFault::Delay) {
            self.wait_for_the_end_of(AiFault::Delay).await;
        }
        match fault {
            Some(AiFault::Status(status)) => {
                self.set_outcome(index, "status");
                Some(error(status, "The sandbox was told to fail.", "sandbox_fault"))
            }
            Some(AiFault::OtherError(status)) => {
                self.set_outcome(index, "status");
                Some(Response { status, ..Response::json(&json!({ "detail": "The sandbox was told to fail." })) })
            }
            Some(AiFault::ErrorPage(status)) => {
                self.set_outcome(index, "html");
                Some(Response::new(status, "text/html", "<!DOCTYPE html><title>Maintenance</title>"))
            }
            Some(AiFault::Html) => {
                self.set_outcome(index, "html");
                Some(Response::new(200, "text/html", "<!DOCTYPE html><title>Maintenance</title>"))
            }
            Some(AiFault::WrongShape) => {
                self.set_outcome(index, "wrong shape");
                let is_stream = body["stream"] == true;
                let (content_type, text) = match is_stream {
                    true => ("text/event-stream", "data: {\"ok\":true}\n\n"),
                    false => ("application/json", "{\"ok\":true}"),
                };
                Some(Response::new(200, content_type, text))
            }
            Some(AiFault::LongLists(count)) => {
                self.set_outcome(index, "long lists");
                let list = vec!["0"; count].join(",");
                let completion = format!(r#"{{"choices":[{list}],"usage":[{list}]}}"#);
                Some(Response::new(200, "application/json", completion))
            }
            Some(AiFault::Redirect) => {
                self.set_outcome(index, "redirect");
                Some(Response::redirect("http://127.0.0.1:9/elsewhere"))
            }
            Some(AiFault::Hang) => {
                self.wait_for_the_end_of(AiFault::Hang).await;
                self.set_outcome(index, "hang");
                None
            }
            fault if body["stream"] == true => Some(self.stream(index, &body, fault)),
            fault => Some(self.whole(index, &body, fault)),
        }
    }

    async fn wait_for_the_end_of(&self, fault: AiFault) {
        self.fault.subscribe().wait_for(|current| *current != Some(fault)).await.unwrap();
    }

    fn whole(&self, index: usize, body: &Value, fault: Option<AiFault>) -> Response {
        let answer = answer(body, fault);
        let message = json!({ "role": "assistant", "content": answer });
        let mut completion = json!({
            "id": format!("chatcmpl-{index}"), "object": "chat.completion", "created": 0, "model": body["model"],
            "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        });
        if let Some(usage) = usage(body, &answer, fault) {
            completion["usage"] = usage;
        }
        let mut bytes = Bytes::from(completion.to_string());
        match fault {
            Some(AiFault::Trickle) => self.send(index, fault, "application/json", vec![bytes]),
            Some(AiFault::Cut(_)) => {
                let first = bytes.split_to(bytes.len() / 2);
                self.send(index, Some(AiFault::Cut(1)), "application/json", vec![first, bytes])
            }
            _ => {
                self.set_outcome(index, "complete");
                Response::json(&completion)
            }
        }
    }

    fn stream(&self, index: usize, body: &Value, fault: Option<AiFault>) -> Response {
        let answer = answer(body, fault);
        let chunk = |choices: Value| {
            json!({ "id": format!("chatcmpl-{index}"), "object": "chat.completion.chunk", "created": 0,
                "model": body["model"], "choices": choices })
        };
        let delta =
            |delta: Value, finish: Value| chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]));
        let mut events = vec![delta(json!({ "role": "assistant", "content": "" }), Value::Null)];
        events.extend(parts(&answer).map(|part| delta(json!({ "content": part }), Value::Null)));
        events.push(delta(json!({}), json!("stop")));
        if body["stream_options"]["include_usage"] == true
            && let Some(usage) = usage(body, &answer, fault)
        {
            let mut last = chunk(json!([]));
            last["usage"] = usage;
            events.push(last);
        }
        let events = events.iter().map(Value::to_string).chain(["[DONE]".to_owned()]);
        let events = events.map(|event| format!("data: {event}\n\n").into()).collect();
        self.send(index, fault, "text/event-stream", events)
    }

    /// Sends the parts of a body, one after the other.
    fn send(&self, index: usize, fault: Option<AiFault>, content_type: &'static str, parts: Vec<Bytes>) -> Response {
        let (sender, rest) = mpsc::channel(1);
        let (calls, mut faults) = (Arc::clone(&self.calls), self.fault.subscribe());
        tokio::spawn(async move {
            let mut outcome = "complete";
            let mut parts = parts;
            if fault == Some(AiFault::Comment) {
                // If the client is gone, the next part is not sent either.
                let _ = sender.send(Ok(Bytes::from_static(b": PROCESSING\n\n"))).await;
                tokio::select! {
                    _ = faults.wait_for(|current| *current != Some(AiFault::Comment)) => {}
                    () = sender.closed() => {}
                }
                if *faults.borrow() == Some(AiFault::WrongShape) {
                    parts = vec![Bytes::from_static(
                        b"data: {\"error\":{\"message\":\"The sandbox was told to fail.\"}}\n\n",
                    )];
                }
            }
            for (number, part) in parts.into_iter().enumerate() {
                if fault == Some(AiFault::Cut(number)) {
                    // When the body fails, the server discards everything that it has not sent. So give it time to send
                    // the previous events.
                    if let Ok(permit) = sender.reserve().await {
                        tokio::time::sleep(FLUSH).await;
                        permit.send(Err(io::Error::from(io::ErrorKind::ConnectionAborted)));
                    }
                    outcome = "cut";
                    break;
                }
                if fault == Some(AiFault::Pause(number)) {
                    tokio::select! {
                        _ = faults.wait_for(|current| !matches!(current, Some(AiFault::Pause(_)))) => {}
                        () = sender.closed() => {}
                    }
                }
                let size = if fault == Some(AiFault::Trickle) { 1 } else { part.len() };
                for chunk in part.chunks(size) {
                    if size == 1 {
                        tokio::time::sleep(TRICKLE).await;
                    }
                    if sender.send(Ok(Bytes::copy_from_slice(chunk))).await.is_err() {
                        outcome = "aborted";
                        break;
                    }
                }
                if outcome == "aborted" {
                    break;
                }
            }
            set_outcome(&calls, index, outcome);
        });
        Response { rest: Some(rest), ..Response::new(200, content_type, "") }
    }

    fn calls(&self) -> MutexGuard<'_, Recent<ReceivedCall>> {
        self.calls.lock().unwrap()
    }

    fn set_outcome(&self, index: usize, outcome: &'static str) {
        set_outcome(&self.calls, index, outcome);
    }
}

fn set_outcome(calls: &Mutex<Recent<ReceivedCall>>, index: usize, outcome: &'static str) {
    if let Some(call) = calls.lock().unwrap().get_mut(index) {
        call.outcome = outcome;
    }
}

fn error(status: u16, message: &str, code: &str) -> Response {
    error_of(None, status, message, code)
}

/// Returns an error that names the invalid field.
fn error_of(param: Option<&str>, status: u16, message: &str, code: &str) -> Response {
    let kind = if status == 429 { "rate_limit_error" } else { "invalid_request_error" };
    let error = json!({ "error": { "message": message, "type": kind, "param": param, "code": code } });
    Response { status, ..Response::json(&error) }
}

/// Returns the answer of the model.
fn answer(body: &Value, fault: Option<AiFault>) -> String {
    if let Some(AiFault::LongAnswer(bytes)) = fault {
        return "x".repeat(bytes);
    }
    let messages = body["messages"].as_array().into_iter().flatten().rev();
    let mut questions = messages.filter(|message| message["role"] == "user").map(|message| &message["content"]);
    let question = questions.next().map(|content| content.as_str().map_or_else(|| content.to_string(), str::to_owned));
    format!("You said: {}", question.unwrap_or_default())
}

/// Splits the answer into the parts of its events.
fn parts(answer: &str) -> impl Iterator<Item = String> {
    let letters: Vec<char> = answer.chars().collect();
    letters.chunks(EVENT_BYTES).map(|part| part.iter().collect()).collect::<Vec<String>>().into_iter()
}

fn usage(body: &Value, answer: &str, fault: Option<AiFault>) -> Option<Value> {
    let (input, output) = (body["messages"].to_string().len().div_ceil(4), answer.len().div_ceil(4));
    let usage = |input: Value, output: Value| json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": null });
    match fault {
        Some(AiFault::NoUsage) => None,
        Some(AiFault::NegativeUsage) => Some(usage(json!(-1), json!(output))),
        Some(AiFault::HugeUsage) => Some(usage(json!(input), json!(4_000_000_000_u64))),
        _ => Some(json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output })),
    }
}

/// An upstream for tests.
#[derive(Debug)]
pub struct AiServer {
    base: String,
    ai: Arc<Ai>,
    _task: JoinSet<()>,
}

impl AiServer {
    /// Starts an upstream on a free port.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start() -> Self {
        let respond = |ai: Arc<Ai>, request| async move { ai.respond(&request).await };
        let (base, ai, task) = http::serve_on_free_port(|_| Ai::new(usize::MAX), respond).await;
        Self { base, ai, _task: task }
    }

    /// Returns the base URL of the API, with its version.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}{AI_PATH}", self.base)
    }

    /// Returns the settings with which a node uses this upstream.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 2] {
        [("SVC_NODE_AI_URL", self.url()), ("SVC_NODE_AI_KEY", AI_KEY.to_owned())]
    }

    /// Injects a fault, or removes it.
    pub fn inject(&self, fault: Option<AiFault>) {
        self.ai.fault.send_replace(fault);
    }

    /// Returns the bodies of the calls so far, with their outcomes: `complete`, `aborted` by the client, or the name of
    /// a fault.
    #[must_use]
    pub fn calls(&self) -> Vec<(Value, &'static str)> {
        self.ai.calls().iter().map(|call| (call.body.clone(), call.outcome)).collect()
    }
}
