//! `Idempotency-Key`: a POST that is sent again gets the answer that the first one got (contract section 5).
//!
//! The key is claimed once it is known who asks and that they may, and before anything else is read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::to_bytes;
use actix_web::dev::Payload;
use actix_web::http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{Stream, StreamExt as _};
use kernel::audit::{Actor, Once};
use kernel::{Code, Digest, Digester, Kind};
use serde::{Deserialize, Serialize};
use store::{Claim, Store};

use super::body::{Upload, read_in_time};
use super::operation::Limits;
use super::{Extract as _, Operation};
use crate::problem::Problem;
use crate::request_id::RequestId;

/// 409: the first one is not answered yet.
pub(crate) const IN_PROGRESS: Code = Code::new(
    "idempotency_in_progress",
    Kind::Conflict,
    "Another request with this Idempotency-Key is still being carried out; ask again in a moment.",
);
/// 409: whether to repeat it is not for us to decide.
pub(crate) const ANSWER_LOST: Code = Code::new(
    "idempotency_answer_lost",
    Kind::Conflict,
    "The first request with this Idempotency-Key was carried out, but its answer was lost; look at what it made.",
);
/// 422: the key belongs to another request.
pub(crate) const MISMATCH: Code = Code::new(
    "idempotency_mismatch",
    Kind::Unprocessable,
    "The Idempotency-Key was used for a request with another body; take a new key for a new request.",
);

const KEY: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Headers that belong to an answer rather than to the exchange.
const KEPT: [HeaderName; 3] = [CONTENT_TYPE, ETAG, REQUEST_ID];

/// How often a long request says that it is still at work.
const ALIVE: Duration = Duration::from_secs(5);

/// What the key means for a route.
pub(crate) fn describe(operation: &mut Operation) {
    let schema = serde_json::json!({ "type": "string", "minLength": 1, "maxLength": 255 });
    let meaning = "Makes it safe to send the request again: within 24 hours the same key and body are answered the same, \
                   with `Idempotent-Replayed: true`, and nothing is done twice.";
    operation.parameter("header", "Idempotency-Key", meaning, &schema);
    operation.codes(&[&Code::BAD_REQUEST, &IN_PROGRESS, &ANSWER_LOST, &MISMATCH]);
}

/// How a request begins.
pub(crate) enum Begin {
    /// It is worked on; the answer goes through [`Work::end`].
    Work(Work),
    /// It was answered before.
    Answered(HttpResponse),
}

/// A request at work, with its claim when it came with a key.
pub(crate) struct Work(Option<Claimed>);

struct Claimed {
    store: web::Data<Store>,
    once: Once,
    body: Body,
    alive: Option<tokio::task::JoinHandle<()>>,
    ended: bool,
}

/// What is known of the body: its digest, or that of an upload once it is through.
enum Body {
    Known(Digest),
    Streamed(Arc<Mutex<Option<Digest>>>),
}

/// An answer as it is kept.
#[derive(Serialize, Deserialize)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// Claims the key that came with a POST of somebody who is signed in.
pub(crate) async fn begin(
    request: &HttpRequest,
    payload: &mut Payload,
    actor: Option<&mut Actor>,
    limits: Limits,
) -> Result<Begin, Problem> {
    let Some(actor) = actor.filter(|_| request.method() == Method::POST) else { return Ok(Begin::Work(Work(None))) };
    let Some(key) = key(request)? else { return Ok(Begin::Work(Work(None))) };
    let store = web::Data::<Store>::extract(request, payload).await?;
    let (known, streamed) = if limits.long {
        (None, digest_of_stream(payload))
    } else {
        let bytes = read_in_time(request, payload, limits.body).await?;
        let digest = Digest::of(&bytes);
        *payload = Payload::Stream { payload: Box::pin(futures_util::stream::iter([Ok(Bytes::from(bytes))])) };
        (Some(digest), Arc::default())
    };
    // Of the address only a digest: it may be long, and it may hold a token.
    let route = Digest::of(format!("{} {}", request.method(), request.uri()).as_bytes()).to_string();
    let caller = actor.credential.to_string();
    let claim = store.once_claim(store::Request { caller: &caller, route: &route, key: &key, body: known }).await?;
    match claim {
        Claim::First(once) => {
            actor.once = Some(once);
            let body = known.map_or(Body::Streamed(streamed), Body::Known);
            let alive = limits.long.then(|| actix_web::rt::spawn(stay_alive(store.clone(), once)));
            Ok(Begin::Work(Work(Some(Claimed { store, once, body, alive, ended: false }))))
        }
        Claim::InProgress { body: Some(first) } | Claim::Lost { body: Some(first) }
            if known.is_some_and(|body| body != first) =>
        {
            Err(mismatch())
        }
        Claim::InProgress { .. } => Err(Problem::new(
            &IN_PROGRESS,
            "the first request with this Idempotency-Key is not answered yet; ask again",
        )),
        Claim::Lost { .. } => Err(Problem::new(
            &ANSWER_LOST,
            "the first request with this Idempotency-Key was carried out, but its answer was lost; look at what it made",
        )),
        Claim::Answered { body, answer } => {
            let again = match known {
                Some(digest) => Some(digest),
                None => drain(request, payload, &streamed).await?,
            };
            if body != again {
                return Err(mismatch());
            }
            replay(&answer).map(Begin::Answered)
        }
    }
}

impl Work {
    /// Keeps the answer, or gives the key back when nothing came of the request.
    pub(crate) async fn end(
        self,
        request: &HttpRequest,
        outcome: Result<HttpResponse, Problem>,
    ) -> Result<HttpResponse, Problem> {
        let Some(mut claimed) = self.0 else { return outcome };
        let mut response = match outcome {
            Ok(response) => response,
            // Malformed, or our fault: the next one may do better.
            Err(problem) if !problem.is_final() => {
                claimed.release().await;
                return Err(problem);
            }
            Err(problem) => problem.respond(request),
        };
        let Some(digest) = claimed.body.digest() else {
            claimed.release().await;
            return Ok(response);
        };
        let id = RequestId::text(request);
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body).await.map_err(|error| Problem::internal(error.to_string()))?;
        let text = |name: &HeaderName| Some((name.to_string(), head.headers().get(name)?.to_str().ok()?.to_owned()));
        let headers = KEPT.iter().filter_map(text).collect();
        let answer = Answer { status: head.status().as_u16(), headers, body: STANDARD.encode(&bytes) };
        let answer = serde_json::to_vec(&answer).map_err(|error| Problem::internal(error.to_string()))?;
        claimed.ended = true;
        if let Err(error) = claimed.store.once_answer(claimed.once, digest, &answer).await {
            // It was carried out all the same; whoever asks again is told that.
            tracing::warn!(%error, "an answer was not kept for its idempotency key");
        }
        Ok(head.set_body(bytes).map_into_boxed_body())
    }
}

impl Claimed {
    /// Gives the key back before the answer is: whoever reads that may send a better request at once.
    async fn release(&mut self) {
        match self.store.once_release(self.once).await {
            Ok(()) => self.ended = true,
            Err(error) => tracing::debug!(%error, "an idempotency key was not given back yet"),
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some(alive) = self.alive.take() {
            alive.abort();
        }
        if self.ended {
            return;
        }
        let (store, once) = (self.store.clone(), self.once);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.once_release(once).await {
                    tracing::debug!(%error, "an idempotency key was not given back; its lease will run out");
                }
            });
        }
    }
}

impl Body {
    fn digest(&self) -> Option<Digest> {
        match self {
            Self::Known(digest) => Some(*digest),
            Self::Streamed(digest) => *digest.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

async fn stay_alive(store: web::Data<Store>, once: Once) {
    loop {
        tokio::time::sleep(ALIVE).await;
        if let Err(error) = store.once_renew(once).await {
            tracing::debug!(%error, "an idempotency key was not renewed");
        }
    }
}

/// The key: 1 to 255 printable characters, there once.
fn key(request: &HttpRequest) -> Result<Option<String>, Problem> {
    let mut sent = request.headers().get_all(KEY);
    let Some(first) = sent.next() else { return Ok(None) };
    let text = first.to_str().ok().filter(|text| (1..=255).contains(&text.len()) && sent.next().is_none());
    let text =
        text.ok_or_else(|| Problem::bad_request("Idempotency-Key must be there once: 1 to 255 ASCII characters"))?;
    Ok(Some(text.to_owned()))
}

fn mismatch() -> Problem {
    Problem::new(&MISMATCH, "the Idempotency-Key was used for a request with another body; take a new one")
}

fn replay(answer: &[u8]) -> Result<HttpResponse, Problem> {
    let broken = |error: &dyn std::fmt::Display| Problem::internal(format!("a kept answer cannot be read: {error}"));
    let Answer { status, headers, body } = serde_json::from_slice(answer).map_err(|error| broken(&error))?;
    let mut response = HttpResponse::build(StatusCode::from_u16(status).map_err(|error| broken(&error))?);
    for (name, value) in headers {
        response.insert_header((name, value));
    }
    let body = STANDARD.decode(body).map_err(|error| broken(&error))?;
    Ok(response.insert_header((REPLAYED, "true")).body(body))
}

/// Reads an upload to its end, for its digest alone.
async fn drain(
    request: &HttpRequest,
    payload: &mut Payload,
    digest: &Mutex<Option<Digest>>,
) -> Result<Option<Digest>, Problem> {
    let mut stream = Upload::extract(request, payload).await?.into_stream();
    while let Some(chunk) = stream.next().await {
        chunk.map_err(|error| Problem::bad_request(format!("the body broke off: {error}")))?;
    }
    Ok(*digest.lock().unwrap_or_else(PoisonError::into_inner))
}

type PayloadItem = Result<Bytes, actix_web::error::PayloadError>;

/// Lets the body pass through a digest, which is there once all of it has passed.
fn digest_of_stream(payload: &mut Payload) -> Arc<Mutex<Option<Digest>>> {
    let digest = Arc::new(Mutex::new(None));
    let through = Through { body: payload.take(), digester: Some(Digester::default()), digest: digest.clone() };
    *payload = Payload::Stream { payload: Box::pin(through) };
    digest
}

struct Through {
    body: Payload,
    digester: Option<Digester>,
    digest: Arc<Mutex<Option<Digest>>>,
}

impl Stream for Through {
    type Item = PayloadItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<PayloadItem>> {
        let item = std::task::ready!(self.body.poll_next_unpin(context));
        match &item {
            Some(Ok(chunk)) => {
                if let Some(digester) = &mut self.digester {
                    digester.update(chunk);
                }
            }
            Some(Err(_)) => self.digester = None,
            None => {
                if let Some(whole) = self.digester.take() {
                    *self.digest.lock().unwrap_or_else(PoisonError::into_inner) = Some(whole.finish());
                }
            }
        }
        Poll::Ready(item)
    }
}
