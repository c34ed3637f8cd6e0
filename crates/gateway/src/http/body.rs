//! What a handler takes from the body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, web};
use futures_util::{Stream, StreamExt as _};
use kernel::Code;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use utoipa::ToSchema;
use validator::{Validate, ValidationErrors, ValidationErrorsKind};

use super::{Describe, Extract, Operation, guard, json as strict};
use crate::openapi::Schemas;
use crate::problem::Problem;
use crate::protocol;
use crate::shape::{self, Fault};

/// The largest JSON body where a route does not say otherwise, in bytes.
pub(super) const LARGEST: usize = 64 * 1024;

/// Who sends head and body together is not taken for slow.
const PROMPT: Duration = Duration::from_millis(50);

/// How long a JSON body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(5);

/// Uploads at once. Each holds a thread of its own while it is read.
const UPLOADS: usize = 32;

/// How long an upload may take in all.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(600);

/// How long an upload may stand still.
const PATIENCE: Duration = Duration::from_secs(30);

/// A JSON body. Every fault is named: the shape against the published schema, the values by their own rules.
/// `MOST` is how many bytes it may have.
#[derive(Debug)]
pub struct Body<T, const MOST: usize = LARGEST>(pub T);

impl<T: ToSchema, const MOST: usize> Describe for Body<T, MOST> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.body = Some(json!({ "required": true, "content": { "application/json": { "schema": schema } } }));
        operation.codes(&[&Code::BAD_REQUEST, &Code::PAYLOAD_TOO_LARGE, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl<T: DeserializeOwned + Validate + ToSchema, const MOST: usize> Extract for Body<T, MOST> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        expect_content_type(request, "application/json")?;
        let bytes = read_in_time(request, payload, MOST).await?;
        let value = strict::parse(&bytes)
            .map_err(|error| Problem::faults(&[fault(String::new(), format!("is not valid JSON: {error}"))]))?;
        let schemas = web::Data::<Schemas>::extract(request, payload).await?;
        let faults = shape::check(schemas.get(&T::name()), schemas.all(), &value);
        if !faults.is_empty() {
            return Err(Problem::faults(&faults));
        }
        let value: T = serde_path_to_error::deserialize(value)
            .map_err(|error| Problem::faults(&[fault(error.path().to_string(), error.inner().to_string())]))?;
        value.validate().map_err(|errors| Problem::faults(&rule_faults("", &errors)))?;
        Ok(Self(value))
    }
}

/// A body of one content type, handed on as it comes. It takes one of the places that uploads have among themselves, so
/// that slow ones cannot take the server from everybody else.
pub struct Upload(Payload, OwnedSemaphorePermit);

impl Describe for Upload {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string", "format": "binary" });
        operation.body = Some(json!({ "required": true, "content": { "application/gzip": { "schema": schema } } }));
        operation.long = true;
        operation.codes(&[&Code::BAD_REQUEST, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl Extract for Upload {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        expect_content_type(request, "application/gzip")?;
        Self::place(request, payload, 1).await
    }
}

impl Upload {
    /// Takes so many places.
    pub(super) async fn place(request: &HttpRequest, payload: &mut Payload, places: u32) -> Result<Self, Problem> {
        let all = web::Data::<UploadPlaces>::extract(request, payload).await?.0.clone();
        let busy = |_| Problem::new(&Code::UNAVAILABLE, "too many uploads at once; try again in a moment");
        Ok(Self(payload.take(), all.try_acquire_many_owned(places).map_err(busy)?))
    }

    /// The bytes. A body that stands still, or comes too slowly as a whole, breaks off.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>> + Unpin {
        let last = Instant::now() + UPLOAD_PATIENCE;
        Patient { body: self.0, alarm: Box::pin(tokio::time::sleep(PATIENCE)), last, _place: self.1 }
    }
}

/// The places that uploads have among themselves.
#[derive(Debug)]
pub(crate) struct UploadPlaces(Arc<Semaphore>);

impl Default for UploadPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(UPLOADS)))
    }
}

struct Patient {
    body: Payload,
    alarm: Pin<Box<tokio::time::Sleep>>,
    last: Instant,
    _place: OwnedSemaphorePermit,
}

impl Stream for Patient {
    type Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let now = Instant::now();
        if now < self.last
            && let Poll::Ready(chunk) = self.body.poll_next_unpin(context)
        {
            let next = self.last.min(now + PATIENCE);
            self.alarm.as_mut().reset(next);
            return Poll::Ready(chunk.map(|chunk| chunk.map_err(|error| error.to_string().into())));
        }
        std::task::ready!(self.alarm.as_mut().poll(context));
        Poll::Ready(Some(Err("the upload stood still, or took too long as a whole".into())))
    }
}

pub(super) fn expect_content_type(request: &HttpRequest, expected: &str) -> Result<(), Problem> {
    let encoded = request.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity");
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if encoded || !essence.eq_ignore_ascii_case(expected) {
        let message = format!("send the body as Content-Type: {expected}, without a Content-Encoding");
        return Err(Problem::new(&protocol::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

/// The whole of a body that is no upload. One that is not there at once is waited for without a place among the requests
/// that are worked on.
pub(crate) async fn read_in_time(
    request: &HttpRequest,
    payload: &mut Payload,
    most: usize,
) -> Result<Vec<u8>, Problem> {
    let mut reading = std::pin::pin!(read(payload, most));
    if let Ok(read) = tokio::time::timeout(PROMPT, &mut reading).await {
        return read;
    }
    guard::step_out(request);
    let late = |_| Problem::bad_request(format!("the body did not arrive within {} s", BODY_PATIENCE.as_secs()));
    let read = tokio::time::timeout(BODY_PATIENCE, reading).await.map_err(late)??;
    guard::step_in(request)?;
    Ok(read)
}

async fn read(payload: &mut Payload, most: usize) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| Problem::bad_request(format!("the body broke off: {error}")))?;
        if bytes.len() + chunk.len() > most {
            return Err(Problem::too_large(most as u64));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The faults that a type's own rules found. The offending values stay out: one may be a password.
fn rule_faults(path: &str, errors: &ValidationErrors) -> Vec<Fault> {
    let within = |name: &str| {
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    };
    let mut faults = Vec::new();
    for (name, kind) in errors.errors() {
        let name = within(&camel_case(name));
        match kind {
            ValidationErrorsKind::Struct(inner) => faults.extend(rule_faults(&name, inner)),
            ValidationErrorsKind::List(items) => {
                faults.extend(items.iter().flat_map(|(at, inner)| rule_faults(&format!("{name}[{at}]"), inner)));
            }
            ValidationErrorsKind::Field(broken) => faults.extend(broken.iter().map(|rule| {
                let message =
                    rule.message.as_ref().map_or_else(|| format!("breaks the rule {}", rule.code), ToString::to_string);
                fault(name.clone(), message)
            })),
        }
    }
    faults
}

fn camel_case(name: &str) -> String {
    let mut upper = false;
    let mut camel = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if std::mem::take(&mut upper) => camel.extend(c.to_uppercase()),
            c => camel.push(c),
        }
    }
    camel
}

fn fault(path: String, message: String) -> Fault {
    let path = if path == "." { String::new() } else { path };
    Fault { path, message }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upload(…)")
    }
}
