//! Responses of the PowerDNS-compatible API.

use actix_web::HttpResponse;
use serde::Serialize;

use crate::http::{Describe, Operation, Reply};

/// JSON whose shape PowerDNS's documentation describes.
#[derive(Debug)]
pub(super) struct Answer<T>(pub(super) T);

/// The same, of something new.
#[derive(Debug)]
pub(super) struct New<T>(pub(super) T);

/// What became of what was asked for.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) result: &'static str,
}

impl<T> Describe for Answer<T> {
    fn describe(operation: &mut Operation) {
        operation.successes.push((200, "application/json", None));
    }
}

impl<T: Serialize> Reply for Answer<T> {
    fn respond(self) -> HttpResponse {
        HttpResponse::Ok().json(self.0)
    }
}

impl<T> Describe for New<T> {
    fn describe(operation: &mut Operation) {
        operation.successes.push((201, "application/json", None));
    }
}

impl<T: Serialize> Reply for New<T> {
    fn respond(self) -> HttpResponse {
        HttpResponse::Created().json(self.0)
    }
}
