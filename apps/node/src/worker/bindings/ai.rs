//! `env.ai`: calls of AI models, with OpenAI's API.

use std::sync::Arc;

use actix_web::body::BodyStream;
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, ContentType};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::LocalBoxFuture;
use futures_util::stream;
use tokio::task::yield_now;

use super::calls::{self, BodyError};
use super::{Binding, BindingCall, Caller};
use crate::ai::{Ai, AiError, Completion};
use crate::environment::Environment;
use crate::index::Code;

/// The longest request.
const MAX_BODY_BYTES: usize = 8 << 20;

const MAX_IN_FLIGHT: usize = 1000;

/// The binding `ai`.
pub struct AiBinding(pub Arc<Ai>);

impl Binding for AiBinding {
    fn name(&self) -> &'static str {
        "ai"
    }

    /// In addition to the grant, the bundle must declare `ai` (runtime.md, `env.ai`).
    fn is_granted(&self, environment: &Environment, code: Option<&Code>) -> bool {
        environment.has_ai() && code.is_some_and(|code| code.declares_ai)
    }

    fn module(&self) -> Option<&'static str> {
        Some(include_str!("ai.js"))
    }

    /// Allows as many concurrent calls as a process may have requests of visitors: a stream lasts as long as the model
    /// writes, and each visitor may wait for one.
    fn max_in_flight(&self) -> usize {
        MAX_IN_FLIGHT
    }

    fn handle<'a>(&'a self, call: BindingCall<'a>) -> LocalBoxFuture<'a, HttpResponse> {
        Box::pin(async move {
            self.respond(&call.caller, call.request, call.payload).await.unwrap_or_else(|error| error.response())
        })
    }
}

impl AiBinding {
    async fn respond(
        &self,
        caller: &Caller,
        request: &HttpRequest,
        payload: &mut Payload,
    ) -> Result<HttpResponse, AiError> {
        match (request.method(), request.path()) {
            (&Method::GET, "/v1/models") => Ok(HttpResponse::Ok().json(self.0.models().await?)),
            (&Method::POST, "/v1/chat/completions") => {
                let max = calls::announced_length(request, MAX_BODY_BYTES);
                let memory = self.0.reserve(&caller.owner, max).await?;
                let body = calls::read_body(payload, max).await.map_err(|error| {
                    AiError::InvalidRequest(match error {
                        BodyError::TooLong => format!("The request is too long. The limit is {MAX_BODY_BYTES} bytes."),
                        BodyError::Incomplete => "The request is incomplete.".to_owned(),
                    })
                })?;
                Ok(response(self.0.complete(&caller.owner, &caller.project, body, memory).await?))
            }
            _ => Err(AiError::UnknownEndpoint),
        }
    }
}

fn response(completion: Completion) -> HttpResponse {
    match completion {
        Completion::Whole(body, memory) => {
            HttpResponse::Ok().content_type(ContentType::json()).body(calls::deliver_whole(body, memory))
        }
        Completion::Stream(events) => {
            let events = stream::unfold(events, async |mut events| {
                let event = events.next().await?;
                if event.is_err() {
                    // An error closes the connection. Without this pause, the events before the error would not be
                    // written.
                    yield_now().await;
                }
                Some((event, events))
            });
            HttpResponse::Ok()
                .content_type("text/event-stream")
                .insert_header((CACHE_CONTROL, "no-cache"))
                .body(BodyStream::new(Box::pin(events)))
        }
    }
}
