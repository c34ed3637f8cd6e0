//! Responses of the PowerDNS-compatible API.

use actix_web::HttpResponse;
use serde::Serialize;

use crate::http::{Describe, IntoResponse, Operation};

/// 200 with JSON. PowerDNS's documentation describes its shape.
#[derive(Debug)]
pub(super) struct PdnsResponse<T>(pub(super) T);

/// 201 with JSON. PowerDNS's documentation describes its shape.
#[derive(Debug)]
pub(super) struct PdnsCreated<T>(pub(super) T);

/// The result of an action.
#[derive(Debug, Serialize)]
pub(super) struct ActionResult {
    pub(super) result: &'static str,
}

impl<T> Describe for PdnsResponse<T> {
    fn describe(operation: &mut Operation) {
        operation.successes.push((200, "application/json", None));
    }
}

impl<T: Serialize> IntoResponse for PdnsResponse<T> {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Ok().json(self.0)
    }
}

impl<T> Describe for PdnsCreated<T> {
    fn describe(operation: &mut Operation) {
        operation.successes.push((201, "application/json", None));
    }
}

impl<T: Serialize> IntoResponse for PdnsCreated<T> {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Created().json(self.0)
    }
}
