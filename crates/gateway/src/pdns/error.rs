//! Errors of the PowerDNS-compatible API, in PowerDNS's format.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::WWW_AUTHENTICATE;
use dns::DnsError;
use kernel::{Code, Kind};
use serde::Serialize;

use crate::problem::{ErrorFormat, Problem};
use crate::protocol;

/// The challenge in a 401 response.
const CHALLENGE: &str = "X-API-Key realm=\"PowerDNS\"";

/// 422: the request is well formed but not supported.
const UNPROCESSABLE: Code = Code::new("unprocessable", Kind::Unprocessable, "The request is not supported.");
/// 400: the body is not JSON.
pub(super) const MALFORMED: Code = Code::new("malformed", Kind::Invalid, "The body is not JSON.");

/// PowerDNS's error body: `{"error": …}`.
pub(super) struct PowerDnsErrors;

#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
}

impl ErrorFormat for PowerDnsErrors {
    fn schema(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    fn render(&self, problem: &Problem, _: &str) -> HttpResponse {
        let status = status(problem.code());
        let mut response = HttpResponse::build(status);
        for (name, value) in problem.headers().iter().filter(|(name, _)| *name != WWW_AUTHENTICATE) {
            response.insert_header((name.clone(), value.as_str()));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.insert_header((WWW_AUTHENTICATE, CHALLENGE));
        }
        response.json(ErrorBody { error: problem.message() })
    }
}

/// Returns the status of an error in PowerDNS: 422 for invalid values, where `/v1` has 400 or 409. A 409 of PowerDNS
/// means that the zone exists.
fn status(code: &Code) -> StatusCode {
    let of_values = [
        &Code::BAD_REQUEST,
        &DnsError::MANAGED_RRSET,
        &DnsError::CNAME_CONFLICT,
        &DnsError::ZONE_LIMIT,
        &DnsError::ZONE_BYTES_LIMIT,
    ];
    if of_values.contains(&code) { StatusCode::UNPROCESSABLE_ENTITY } else { protocol::status(code) }
}

pub(super) fn unprocessable(message: impl Into<String>) -> Problem {
    Problem::new(&UNPROCESSABLE, message)
}

/// Names each rejected rrset in the message, as PowerDNS does, because its index in the change may differ from its
/// index in the request.
pub(super) fn dns_problem(error: DnsError) -> Problem {
    match error {
        DnsError::InvalidItems(items) => {
            let named = items.iter().map(|item| format!("RRset {} IN {}: {}", item.name, item.kind, item.message));
            unprocessable(named.collect::<Vec<_>>().join("; "))
        }
        // Not a 409, because the zone does not exist.
        error @ DnsError::ZoneOccupied { .. } => unprocessable(error.to_string()),
        error => error.into(),
    }
}
