//! The responses of the endpoints below `/oauth`.

use actix_web::HttpResponse;
use actix_web::http::header::PRAGMA;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::{Describe, IntoResponse, Operation};
use crate::problem::OauthError;

/// A response of 200 with a body that caches must not store (RFC 6749 section 5.1).
#[derive(Debug)]
pub(super) struct Uncached<T>(pub(super) T);

/// A response of 200 without a body (RFC 7009 section 2.2).
#[derive(Debug)]
pub(super) struct Empty;

impl<T: ToSchema> Describe for Uncached<T> {
    fn describe(operation: &mut Operation) {
        operation.schema::<OauthError<'_>>();
        let schema = operation.schema::<T>();
        operation.successes.push((200, "application/json", Some(schema)));
    }
}

impl<T: ToSchema + Serialize> IntoResponse for Uncached<T> {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Ok().insert_header((PRAGMA, "no-cache")).json(self.0)
    }
}

impl Describe for Empty {
    fn describe(operation: &mut Operation) {
        operation.schema::<OauthError<'_>>();
        operation.successes.push((200, "", None));
    }
}

impl IntoResponse for Empty {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Ok().insert_header((PRAGMA, "no-cache")).finish()
    }
}
