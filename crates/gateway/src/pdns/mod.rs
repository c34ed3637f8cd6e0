//! The PowerDNS-compatible face, `/api`: what tools that speak PowerDNS's HTTP API ask of a server of version 4.7, over
//! the same zones as `/v1` (contract section 6).
//!
//! It is no part of the OpenAPI document, since PowerDNS's own documentation describes it, and no part of `/v1`: bodies
//! are read leniently, as tools send more than is needed, and failures have PowerDNS's shape. What it does not do it
//! refuses in words; it never takes what it would not keep.

mod keys;
mod rrset;
mod sent;
mod server;
mod shown;
mod zones;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use dns::DnsError;
use kernel::{Code, Kind};
use serde::Serialize;

use crate::http::{Describe, Operation, Reply, Routes};
use crate::problem::Problem;
use crate::protocol;

/// The challenge of a 401.
pub(crate) const CHALLENGE: &str = "X-API-Key realm=\"PowerDNS\"";

/// 422 of what is well formed and cannot be done here.
const UNPROCESSABLE: Code = Code::new("unprocessable", Kind::Unprocessable, "It cannot be done here.");
/// 400 of a body that is no JSON.
const MALFORMED: Code = Code::new("malformed", Kind::Invalid, "The body is no JSON.");

/// The routes, on the public listener next to those of [`crate::v1`].
#[must_use]
pub fn routes() -> Routes {
    let mut routes = Routes::default();
    server::routes(&mut routes);
    zones::routes(&mut routes);
    keys::routes(&mut routes);
    routes
}

/// Whether a path is one of the face's, whatever becomes of it.
pub(crate) fn is_spoken_at(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/")
}

/// The status that PowerDNS has for a failure: 422 for whatever is wrong with values, where `/v1` has 400 or 409.
pub(crate) fn status(code: &Code) -> StatusCode {
    let of_values = [&Code::BAD_REQUEST, &DnsError::MANAGED_RRSET, &DnsError::CNAME_CONFLICT];
    if of_values.contains(&code) { StatusCode::UNPROCESSABLE_ENTITY } else { protocol::status(code) }
}

/// A failure as PowerDNS words it.
#[derive(Debug, Serialize)]
pub(crate) struct Refusal<'a> {
    pub(crate) error: &'a str,
}

pub(crate) fn unprocessable(message: impl Into<String>) -> Problem {
    Problem::new(&UNPROCESSABLE, message)
}

/// A refusal of several rrsets names each as PowerDNS does: by its place it would be that of another request.
fn refused(error: DnsError) -> Problem {
    match error {
        DnsError::Items(items) => {
            let named = items.iter().map(|item| format!("RRset {} IN {}: {}", item.name, item.kind, item.message));
            unprocessable(named.collect::<Vec<_>>().join("; "))
        }
        error => error.into(),
    }
}

/// JSON whose shape PowerDNS's documentation describes.
#[derive(Debug)]
struct Answer<T>(T);

/// The same, of something new.
#[derive(Debug)]
struct New<T>(T);

/// What became of what was asked for.
#[derive(Debug, Serialize)]
struct Outcome {
    result: &'static str,
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
