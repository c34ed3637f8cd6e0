//! `Idempotency-Key`: a retry of a POST receives the response of the first request (contract section 5).
//!
//! The key is claimed after the caller is authorized, and before the rest of the request is read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody as _, to_bytes};
use actix_web::dev::Payload;
use actix_web::http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{Stream, StreamExt as _};
use kernel::audit::IdempotencyClaim;
use kernel::{AbuseLimits, Code, Digest, Digester, Kind, Plan, error_chain};
use serde::{Deserialize, Serialize};
use store::{ClaimOutcome, Quota, Store};

use super::body::{Upload, read_in_time};
use super::operation::Limits;
use super::{Extract as _, Operation, Policy};
use crate::problem::Problem;
use crate::request_id::RequestId;

/// 409: the first request is still in progress.
pub(crate) const IN_PROGRESS: Code = Code::new(
    "idempotency_in_progress",
    Kind::Conflict,
    "Another request with this Idempotency-Key is still in progress; try again in a moment.",
);
/// 409: the response is lost, and only the client can decide whether to repeat the request.
pub(crate) const ANSWER_LOST: Code = Code::new(
    "idempotency_answer_lost",
    Kind::Conflict,
    "The first request with this Idempotency-Key was executed, but its response was lost; check its result.",
);
/// 422: the key was used for another request.
pub(crate) const MISMATCH: Code = Code::new(
    "idempotency_mismatch",
    Kind::Unprocessable,
    "The Idempotency-Key was used for a request with another body; use a new key for a new request.",
);

const KEY: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The headers that are stored together with a response.
const STORED_HEADERS: [HeaderName; 3] = [CONTENT_TYPE, ETAG, REQUEST_ID];

/// The largest response body that is stored, in bytes.
const MAX_STORED_BYTES: u64 = 16 * 1024;

/// The interval at which a long request renews its claim.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);

/// Adds the header and its error codes to a route's description.
pub(crate) fn describe(operation: &mut Operation) {
    let schema = serde_json::json!({ "type": "string", "minLength": 1, "maxLength": 255 });
    let meaning = "Makes it safe to retry the request. For 24 hours, a request with the same key and body receives the \
                   stored response, with `Idempotent-Replayed: true`, and is not executed again.";
    operation.parameter("header", "Idempotency-Key", meaning, &schema);
    operation.codes(&[&Code::BAD_REQUEST, &IN_PROGRESS, &ANSWER_LOST, &MISMATCH]);
}

/// The result of the idempotency check.
pub(crate) enum IdempotencyCheck {
    /// The request must be executed. Its response goes through [`IdempotentRequest::finish`].
    Execute(IdempotentRequest),
    /// The stored response of an earlier request.
    Replay(HttpResponse),
}

/// A request in progress, with its claim if it has a key.
pub(crate) struct IdempotentRequest(Option<ActiveClaim>);

struct ActiveClaim {
    store: web::Data<Store>,
    claim: IdempotencyClaim,
    body: BodyDigest,
    renewal: Option<tokio::task::JoinHandle<()>>,
    is_closed: bool,
}

/// The digest of the body. The digest of an upload is known only after its last byte.
enum BodyDigest {
    Known(Digest),
    Streamed(Arc<Mutex<Option<Digest>>>),
}

/// A stored response.
#[derive(Serialize, Deserialize)]
struct IdempotentResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

/// Claims the idempotency key of an authenticated POST.
pub(crate) async fn check(
    request: &HttpRequest,
    payload: &mut Payload,
    policy: &mut impl Policy,
    limits: Limits,
) -> Result<IdempotencyCheck, Problem> {
    let plan = policy.plan();
    let Some(actor) = policy.actor().filter(|_| request.method() == Method::POST) else {
        return Ok(IdempotencyCheck::Execute(IdempotentRequest(None)));
    };
    let Some(key) = key(request)? else { return Ok(IdempotencyCheck::Execute(IdempotentRequest(None))) };
    let store = web::Data::<Store>::extract(request, payload).await?;
    let max_keys = web::Data::<AbuseLimits>::extract(request, payload).await?.idempotency_keys_per_user;
    let (body_digest, upload_digest) = if limits.upload.is_some() {
        (None, digest_of_stream(payload))
    } else if let Some(limit) = limits.body {
        let bytes = read_in_time(request, payload, limit).await?;
        let digest = Digest::of(&bytes);
        *payload = Payload::Stream { payload: Box::pin(futures_util::stream::iter([Ok(Bytes::from(bytes))])) };
        (Some(digest), Arc::default())
    } else {
        // The body is ignored (contract section 9), so all bodies are the same.
        (Some(Digest::of(b"")), Arc::default())
    };
    // Store only a digest of the path, which may be long and may contain a token. The URL of a request over HTTP/2 also
    // has a scheme and an authority, which do not distinguish routes, and no POST has query parameters.
    let route = Digest::of(format!("{} {}", request.method(), request.uri().path()).as_bytes()).to_string();
    let caller = actor.credential.to_string();
    let claim = store
        .idempotency_claim(store::ClaimRequest { caller: &caller, route: &route, key: &key, body: body_digest })
        .await?;
    match claim {
        ClaimOutcome::Claimed(claim) => {
            let body = body_digest.map_or(BodyDigest::Streamed(upload_digest), BodyDigest::Known);
            let renewal = limits.long.then(|| actix_web::rt::spawn(renew_claim(store.clone(), claim)));
            let mut active = ActiveClaim { store, claim, body, renewal, is_closed: false };
            // Take the permit after the claim, because a retry with a known key needs none.
            let user = actor.user.map_or(caller, |user| user.to_string());
            let (bucket, quota) = (format!("idempotency-keys {user}"), Quota::at_most_per_day(max_keys));
            let wait = active.store.permits_take(&bucket, quota, 1).await?;
            if let Some(wait) = wait {
                active.release().await;
                return Err(above_limit(max_keys, wait));
            }
            actor.idempotency = Some(claim);
            Ok(IdempotencyCheck::Execute(IdempotentRequest(Some(active))))
        }
        ClaimOutcome::InProgress { body: Some(first) } | ClaimOutcome::Lost { body: Some(first) }
            if body_digest.is_some_and(|body| body != first) =>
        {
            Err(mismatch())
        }
        ClaimOutcome::InProgress { .. } => Err(Problem::new(
            &IN_PROGRESS,
            "the first request with this Idempotency-Key is still in progress; try again in a moment",
        )),
        ClaimOutcome::Lost { .. } => Err(Problem::new(
            &ANSWER_LOST,
            "the first request with this Idempotency-Key was executed, but its response was lost; check its result",
        )),
        ClaimOutcome::Completed { body, response: answer } => {
            let retry_digest = match body_digest {
                Some(digest) => Some(digest),
                None => drain(request, payload, (max_upload(request, plan), &upload_digest)).await?,
            };
            if body != retry_digest {
                return Err(mismatch());
            }
            replay(&answer).map(IdempotencyCheck::Replay)
        }
    }
}

impl IdempotentRequest {
    /// Stores the response, or releases the key if the client may send a corrected request.
    pub(crate) async fn finish(
        self,
        request: &HttpRequest,
        outcome: Result<HttpResponse, Problem>,
    ) -> Result<HttpResponse, Problem> {
        let Some(mut active) = self.0 else { return outcome };
        let mut response = match outcome {
            Ok(response) => response,
            Err(problem) if !problem.is_final() => {
                active.release().await;
                return Err(problem);
            }
            Err(problem) => problem.respond(request),
        };
        let Some(digest) = active.body.digest() else {
            active.release().await;
            return Ok(response);
        };
        // Do not store a large response, because stored responses use the disk of Postgres. A request that changed nothing
        // may be executed again. A retry of another one receives `idempotency_answer_lost`.
        if !matches!(response.body().size(), BodySize::None | BodySize::Sized(..=MAX_STORED_BYTES)) {
            active.release().await;
            return Ok(response);
        }
        let id = RequestId::text(request);
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body).await.map_err(|error| Problem::internal(error.to_string()))?;
        let text = |name: &HeaderName| Some((name.to_string(), head.headers().get(name)?.to_str().ok()?.to_owned()));
        let headers = STORED_HEADERS.iter().filter_map(text).collect();
        let answer = IdempotentResponse { status: head.status().as_u16(), headers, body: STANDARD.encode(&bytes) };
        let answer = serde_json::to_vec(&answer).map_err(|error| Problem::internal(error.to_string()))?;
        active.is_closed = true;
        if let Err(error) = active.store.idempotency_store_response(active.claim, digest, &answer).await {
            // The request was executed anyway. A retry receives `idempotency_answer_lost`.
            tracing::warn!(error = %error_chain(&error), "failed to store the response of an idempotency key");
        }
        Ok(head.set_body(bytes).map_into_boxed_body())
    }
}

impl ActiveClaim {
    /// Releases the key before the client receives the response, so that the client can use the key again immediately.
    async fn release(&mut self) {
        match self.store.idempotency_release(self.claim).await {
            Ok(()) => self.is_closed = true,
            Err(error) => {
                tracing::debug!(error = %error_chain(&error), "failed to release an idempotency key; retrying once")
            }
        }
    }
}

impl Drop for ActiveClaim {
    fn drop(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
        if self.is_closed {
            return;
        }
        let (store, claim) = (self.store.clone(), self.claim);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.idempotency_release(claim).await {
                    tracing::debug!(error = %error_chain(&error), "failed to release an idempotency key; its lease expires");
                }
            });
        }
    }
}

impl BodyDigest {
    fn digest(&self) -> Option<Digest> {
        match self {
            Self::Known(digest) => Some(*digest),
            Self::Streamed(digest) => *digest.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

async fn renew_claim(store: web::Data<Store>, claim: IdempotencyClaim) {
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        if let Err(error) = store.idempotency_renew(claim).await {
            tracing::debug!(error = %error_chain(&error), "failed to renew the lease of an idempotency key");
        }
    }
}

/// Reads the key: one header of 1 to 255 printable characters.
fn key(request: &HttpRequest) -> Result<Option<String>, Problem> {
    let mut sent = request.headers().get_all(KEY);
    let Some(first) = sent.next() else { return Ok(None) };
    let text = first.to_str().ok().filter(|text| (1..=255).contains(&text.len()) && sent.next().is_none());
    let text =
        text.ok_or_else(|| Problem::bad_request("send one Idempotency-Key of 1 to 255 printable ASCII characters"))?;
    Ok(Some(text.to_owned()))
}

/// Creates the error 429 of a user with too many new keys.
fn above_limit(limit: u32, wait: Duration) -> Problem {
    let retry_after = wait.as_secs().saturating_add(1);
    let message = format!(
        "you can use at most {limit} new Idempotency-Keys in 24 hours, half of them in one burst; \
         retry in {retry_after} s, or send the request without a key"
    );
    let details = serde_json::json!({ "limit": limit, "of": "idempotency_keys" });
    Problem::new(&Code::RATE_LIMITED, message)
        .with_details(Some(details))
        .with_header(RETRY_AFTER, retry_after.to_string())
}

fn mismatch() -> Problem {
    Problem::new(&MISMATCH, "the Idempotency-Key was used for a request with another body; use a new key")
}

fn replay(answer: &[u8]) -> Result<HttpResponse, Problem> {
    let broken =
        |error: &dyn std::fmt::Display| Problem::internal(format!("failed to read a stored response: {error}"));
    let IdempotentResponse { status, headers, body } =
        serde_json::from_slice(answer).map_err(|error| broken(&error))?;
    let mut response = HttpResponse::build(StatusCode::from_u16(status).map_err(|error| broken(&error))?);
    for (name, value) in headers {
        response.insert_header((name, value));
    }
    let body = STANDARD.decode(body).map_err(|error| broken(&error))?;
    Ok(response.insert_header((REPLAYED, "true")).body(body))
}

/// Reads an upload to its end and returns its digest. Rejects an upload that is larger than the plan allows, because no
/// earlier request with this upload can have succeeded.
async fn drain(
    request: &HttpRequest,
    payload: &mut Payload,
    (limit, digest): (u64, &Mutex<Option<Digest>>),
) -> Result<Option<Digest>, Problem> {
    let mut stream = Upload::extract(request, payload).await?.into_stream();
    let mut bytes = 0;
    while let Some(chunk) = stream.next().await {
        bytes += chunk?.len() as u64;
        if bytes > limit {
            let details = serde_json::json!({ "limit": limit, "of": "compressed" });
            return Err(Problem::too_large(limit).with_details(Some(details)));
        }
    }
    Ok(*digest.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the size of the largest bundle of a plan in bytes, or 0 for a policy without a plan.
fn max_upload(request: &HttpRequest, plan: Option<Plan>) -> u64 {
    let limits = request.app_data::<web::Data<kernel::Limits>>();
    limits.zip(plan).map_or(0, |(limits, plan)| limits.for_plan(plan).bundle.compressed)
}

type PayloadItem = Result<Bytes, actix_web::error::PayloadError>;

/// Hashes the body while it is read. The digest is available after the last byte.
fn digest_of_stream(payload: &mut Payload) -> Arc<Mutex<Option<Digest>>> {
    let digest = Arc::new(Mutex::new(None));
    let through = HashingStream { body: payload.take(), digester: Some(Digester::default()), digest: digest.clone() };
    *payload = Payload::Stream { payload: Box::pin(through) };
    digest
}

struct HashingStream {
    body: Payload,
    digester: Option<Digester>,
    digest: Arc<Mutex<Option<Digest>>>,
}

impl Stream for HashingStream {
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
