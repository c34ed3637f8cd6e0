//! `env.db`: the project's Postgres.
//!
//! A call is a `POST` to its name. The body is a JSON array of statements ([`crate::pg`]). The response is the JSON of
//! the results. If the call fails after a part of the response was sent, the JSON ends with the error.

use std::sync::Arc;

use actix_web::body::BodyStream;
use actix_web::http::StatusCode;
use actix_web::http::header::ContentType;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::LocalBoxFuture;
use futures_util::{StreamExt as _, stream};

use super::calls::{self, BodyError};
use super::{Binding, BindingCall, Caller, error};
use crate::environment::Environment;
use crate::index::Code;
use crate::pg::{Call, DatabaseError, Mode, Pools, Result};

/// The longest body. It has space for 10 MiB of binary data in base64, or for 10 MiB of text with some escapes.
const MAX_BODY_BYTES: usize = 16 << 20;

/// The binding `db`; `None` if the node has no Postgres.
pub struct DatabaseBinding(pub Option<Arc<Pools>>);

impl Binding for DatabaseBinding {
    fn name(&self) -> &'static str {
        "db"
    }

    fn is_granted(&self, environment: &Environment, _: Option<&Code>) -> bool {
        environment.has_database()
    }

    fn module(&self) -> Option<&'static str> {
        Some(include_str!("database.js"))
    }

    fn handle<'a>(&'a self, call: BindingCall<'a>) -> LocalBoxFuture<'a, HttpResponse> {
        Box::pin(async move {
            let response = self.respond(&call.caller, call.request, call.payload).await;
            response.unwrap_or_else(|failed| error(status(&failed), failed.code(), &failed.to_string()))
        })
    }
}

impl DatabaseBinding {
    async fn respond(&self, caller: &Caller, request: &HttpRequest, payload: &mut Payload) -> Result<HttpResponse> {
        let pools = self.0.as_ref().ok_or(DatabaseError::NOT_CONFIGURED)?;
        let mode = match request.path() {
            "/query" => Mode::Query,
            "/batch" => Mode::Batch,
            _ => return Err(DatabaseError::InvalidArgument("Unknown operation.".to_owned())),
        };
        let pool = pools.get(&caller.project);
        let max = calls::announced_length(request, MAX_BODY_BYTES);
        let memory = pool.reserve(&caller.owner, max).await?;
        let body = calls::read_body(payload, max).await.map_err(|error| match error {
            BodyError::TooLong => DatabaseError::InvalidArgument(format!(
                "The statements and their parameters are too long. The limit is {MAX_BODY_BYTES} bytes as JSON, with \
                 binary data in base64."
            )),
            BodyError::Incomplete => DatabaseError::INCOMPLETE,
        })?;
        let mut chunks = pool.call(Call { owner: caller.owner.clone(), mode, body, memory });
        let first = chunks.recv().await.ok_or(DatabaseError::LOST)??;
        let Some(second) = chunks.recv().await else {
            return Ok(HttpResponse::Ok().content_type(ContentType::json()).body(first));
        };
        let rest = stream::unfold(chunks, async |mut chunks| Some((chunks.recv().await?, chunks)));
        let chunks = stream::once(async { Ok(first) }).chain(stream::once(async { second })).chain(rest);
        Ok(HttpResponse::Ok().content_type(ContentType::json()).body(BodyStream::new(chunks.boxed_local())))
    }
}

const fn status(error: &DatabaseError) -> StatusCode {
    match error {
        DatabaseError::Statement { .. }
        | DatabaseError::InvalidArgument(_)
        | DatabaseError::NotSupported(_)
        | DatabaseError::TimedOut(_)
        | DatabaseError::BatchTimedOut(_)
        | DatabaseError::ResultTooLarge(_) => StatusCode::BAD_REQUEST,
        DatabaseError::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
        DatabaseError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
