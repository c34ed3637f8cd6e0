//! `env.email`: the sender of mail.
//!
//! A call is a `POST` of an [`OutgoingMail`] in JSON. The response has the id of the queued mail.

use actix_web::http::StatusCode;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::LocalBoxFuture;
use protocol::{MailRefusal, OutgoingMail};
use serde_json::json;

use super::calls::{self, BodyError};
use super::{Binding, BindingCall, Caller, error};
use crate::environment::Environment;
use crate::index::Code;
use crate::mail::{MAX_SUBMISSION_BYTES, Mailer, SendError};

/// The binding `email`.
pub struct EmailBinding(pub Mailer);

impl Binding for EmailBinding {
    fn name(&self) -> &'static str {
        "email"
    }

    fn is_granted(&self, environment: &Environment, _: Option<&Code>) -> bool {
        environment.has_email()
    }

    fn module(&self) -> Option<&'static str> {
        Some(include_str!("email.js"))
    }

    fn handle<'a>(&'a self, call: BindingCall<'a>) -> LocalBoxFuture<'a, HttpResponse> {
        Box::pin(async move {
            let sent = self.send(&call.caller, call.request, call.payload).await;
            self.0.count(&sent);
            match sent {
                Ok(id) => HttpResponse::Ok().json(json!({ "id": id })),
                Err(failed) => error(status(&failed), failed.code(), &failed.to_string()),
            }
        })
    }
}

impl EmailBinding {
    async fn send(&self, caller: &Caller, request: &HttpRequest, payload: &mut Payload) -> Result<String, SendError> {
        if request.path() != "/send" {
            return Err(SendError::InvalidMessage("Unknown operation."));
        }
        let max = calls::announced_length(request, MAX_SUBMISSION_BYTES);
        let _memory = self.0.reserve(&caller.owner, max).await?;
        let body = calls::read_body(payload, max).await.map_err(|error| match error {
            BodyError::TooLong => SendError::TooLarge,
            BodyError::Incomplete => SendError::InvalidMessage("The mail is incomplete."),
        })?;
        let mail: OutgoingMail =
            serde_json::from_slice(&body).map_err(|_| SendError::InvalidMessage("The mail is malformed."))?;
        drop(body);
        self.0.send(&caller.project, mail).await
    }
}

const fn status(error: &SendError) -> StatusCode {
    match error {
        SendError::Refused(refused) => match refused.code {
            MailRefusal::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            MailRefusal::MailboxFull => StatusCode::INSUFFICIENT_STORAGE,
            MailRefusal::NotGranted => StatusCode::FORBIDDEN,
            MailRefusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            MailRefusal::Suppressed
            | MailRefusal::InvalidRecipient
            | MailRefusal::InvalidSender
            | MailRefusal::InvalidMessage => StatusCode::BAD_REQUEST,
        },
        SendError::InvalidMessage(_) => StatusCode::BAD_REQUEST,
        SendError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        SendError::Busy | SendError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}
