//! Codes of HTTP itself, which no context knows.

use actix_web::http::StatusCode;
use kernel::{Code, Kind};

pub(crate) const SESSION_REQUIRED: Code =
    Code::new("session_required", Kind::Unauthenticated, "Only a login session serves here; a token does not.");
pub(crate) const INSUFFICIENT_SCOPE: Code =
    Code::new("insufficient_scope", Kind::Forbidden, "The token lacks the scope that `details.required` names.");
pub(crate) const RATE_LIMITED: Code =
    Code::new("rate_limited", Kind::RateLimited, "Too many requests; `Retry-After` tells when to come back.");
pub(crate) const METHOD_NOT_ALLOWED: Code =
    Code::new("method_not_allowed", Kind::Invalid, "The path exists, the method does not; see `Allow`.");
pub(crate) const UNSUPPORTED_MEDIA_TYPE: Code = Code::new(
    "unsupported_media_type",
    Kind::Invalid,
    "The body has another content type or encoding than the route takes.",
);
pub(crate) const URI_TOO_LONG: Code = Code::new("uri_too_long", Kind::Invalid, "The address is longer than 8 KiB.");
pub(crate) const HEADERS_TOO_LARGE: Code =
    Code::new("headers_too_large", Kind::Invalid, "There are more than 64 headers, or more than 16 KiB of them.");

/// The one map from kinds to statuses. Codes of HTTP itself have statuses of their own.
pub(crate) fn status(code: &Code) -> StatusCode {
    if *code == METHOD_NOT_ALLOWED {
        return StatusCode::METHOD_NOT_ALLOWED;
    }
    if *code == UNSUPPORTED_MEDIA_TYPE {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE;
    }
    if *code == URI_TOO_LONG {
        return StatusCode::URI_TOO_LONG;
    }
    if *code == HEADERS_TOO_LARGE {
        return StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    }
    match code.kind {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Precondition => StatusCode::PRECONDITION_FAILED,
        Kind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
