//! `env.auth`: the users of the project.
//!
//! A call is a `POST` to its name with its arguments in JSON. The response is the JSON of the result.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::calls;
use super::{Binding, BindingCall, Caller, error};
use crate::auth::{MAX_PAGE, StoreError, Users, parse_user_id};
use crate::environment::Environment;
use crate::index::Code;

/// The longest arguments.
const MAX_BODY_BYTES: usize = 4096;

/// The binding `auth`.
pub struct AuthBinding(pub Arc<Users>);

#[derive(Deserialize)]
struct Id {
    id: String,
}

#[derive(Deserialize)]
struct Handle {
    handle: String,
}

#[derive(Deserialize)]
struct List {
    limit: Option<i64>,
    cursor: Option<String>,
}

/// Why a call failed.
enum AuthError {
    InvalidArgument(&'static str),
    Unavailable(StoreError),
}

impl From<StoreError> for AuthError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error)
    }
}

impl Binding for AuthBinding {
    fn name(&self) -> &'static str {
        "auth"
    }

    fn is_granted(&self, environment: &Environment, _: Option<&Code>) -> bool {
        environment.auth().is_some()
    }

    fn module(&self) -> Option<&'static str> {
        Some(include_str!("auth.js"))
    }

    fn handle<'a>(&'a self, call: BindingCall<'a>) -> LocalBoxFuture<'a, HttpResponse> {
        Box::pin(async move {
            self.respond(&call.caller, call.request, call.payload).await.unwrap_or_else(|failed| match failed {
                AuthError::InvalidArgument(message) => error(StatusCode::BAD_REQUEST, "invalid_argument", message),
                AuthError::Unavailable(failed) => {
                    self.0.record_failure(&call.caller.project, failed);
                    let message = "The users are unavailable. Try again in a moment.";
                    error(StatusCode::SERVICE_UNAVAILABLE, "auth_unavailable", message)
                }
            })
        })
    }
}

impl AuthBinding {
    async fn respond(
        &self,
        caller: &Caller,
        request: &HttpRequest,
        payload: &mut Payload,
    ) -> Result<HttpResponse, AuthError> {
        const NOT_GRANTED: AuthError = AuthError::InvalidArgument("The project no longer has app user auth.");
        let auth = caller.environment.auth().ok_or(NOT_GRANTED)?;
        let pool = self.0.pool(&caller.project);
        Ok(match request.path() {
            "/current" => {
                let Handle { handle } = read(payload).await?;
                HttpResponse::Ok().json(self.0.current(&caller.project, auth, &handle).await?)
            }
            "/get" => HttpResponse::Ok().json(pool.user(&read::<Id>(payload).await?.id).await?),
            "/list" => {
                let List { limit, cursor } = read(payload).await?;
                let cursor = match cursor {
                    Some(cursor) => Some(
                        parse_user_id(&cursor)
                            .ok_or(AuthError::InvalidArgument("`cursor` must be the cursor of an earlier page."))?,
                    ),
                    None => None,
                };
                HttpResponse::Ok().json(pool.users(limit.unwrap_or(MAX_PAGE), cursor).await?)
            }
            "/delete" => {
                pool.delete_user(&read::<Id>(payload).await?.id).await?;
                HttpResponse::Ok().json(json!({}))
            }
            _ => return Err(AuthError::InvalidArgument("Unknown operation.")),
        })
    }
}

async fn read<T: DeserializeOwned>(payload: &mut Payload) -> Result<T, AuthError> {
    const MALFORMED: AuthError = AuthError::InvalidArgument("The arguments are malformed or too long.");
    let body = calls::read_body(payload, MAX_BODY_BYTES).await.map_err(|_| MALFORMED)?;
    serde_json::from_slice(&body).map_err(|_| MALFORMED)
}
