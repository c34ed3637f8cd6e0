//! The errors of requests that are not valid HTTP/1, or beyond the limits of actix. No middleware receives them.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use kernel::ClockRng;

use super::guard::headers_too_large;
use super::telemetry::add_default_headers;
use crate::config::Config;
use crate::problem::{EnvelopeFormat, ErrorFormat as _, Problem};
use crate::protocol;
use crate::request_id::RequestId;

/// Returns the response to a request for which actix has this status. Its path and its request id are unknown.
pub(crate) fn reject_malformed(status: StatusCode, config: &Config, clock_rng: &ClockRng) -> HttpResponse {
    let problem = problem(status);
    problem.log();
    let id = RequestId::random(clock_rng);
    let mut response = EnvelopeFormat.render(&problem, id.as_str());
    let headers = response.headers_mut();
    add_default_headers(headers, config.is_https());
    if let Ok(id) = HeaderValue::from_str(id.as_str()) {
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    tracing::info!(request_id = id.as_str(), status = status.as_u16(), "request rejected before it was parsed");
    response
}

fn problem(status: StatusCode) -> Problem {
    match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => headers_too_large(),
        StatusCode::REQUEST_TIMEOUT => {
            Problem::new(&protocol::REQUEST_TIMEOUT, "the headers of the request did not arrive in time; send it again")
        }
        status if status.is_server_error() => Problem::internal("actix failed before a handler received the request"),
        _ => Problem::bad_request("the request line or a header is not valid HTTP/1.1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_the_error_is_that_of_the_response() {
        for status in [
            StatusCode::BAD_REQUEST,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            StatusCode::INTERNAL_SERVER_ERROR,
        ] {
            assert_eq!(protocol::status(problem(status).code()), status);
        }
    }
}
