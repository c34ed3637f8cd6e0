//! The error codes of HTTP itself, which no context uses.

use actix_web::http::StatusCode;
use kernel::{Code, Kind};

pub(crate) const SESSION_REQUIRED: Code =
    Code::new("session_required", Kind::Unauthenticated, "The operation requires a login session, not a token.");
pub(crate) const INSUFFICIENT_SCOPE: Code =
    Code::new("insufficient_scope", Kind::Forbidden, "The token lacks the scope in `details.required`.");
/// 401 instead of the 400 of [`oauth::OAuthError::INVALID_CLIENT`], for a client that used the header `Authorization`
/// (RFC 6749 section 5.2).
pub(crate) const INVALID_CLIENT: Code = Code::new(
    "invalid_client",
    Kind::Unauthenticated,
    "The authentication of the client in the header `Authorization` failed (RFC 6749 section 5.2).",
);
pub(crate) const METHOD_NOT_ALLOWED: Code =
    Code::new("method_not_allowed", Kind::Invalid, "The path does not support the method; see `Allow`.");
pub(crate) const UNSUPPORTED_MEDIA_TYPE: Code = Code::new(
    "unsupported_media_type",
    Kind::Invalid,
    "The operation does not accept the content type or encoding of the body.",
);
pub(crate) const REQUEST_TIMEOUT: Code = Code::new(
    "request_timeout",
    Kind::Invalid,
    "The request did not arrive in time, or its body more slowly than 16 KiB per second.",
);
pub(crate) const URI_TOO_LONG: Code = Code::new("uri_too_long", Kind::Invalid, "The URL is longer than 8 KiB.");
pub(crate) const HEADERS_TOO_LARGE: Code =
    Code::new("headers_too_large", Kind::Invalid, "The request has more than 64 headers or 16 KiB of headers.");
/// The error of a node for a host that it does not serve (`apps/node/src/page.rs`), for the reference.
pub(crate) const UNKNOWN_HOSTNAME: Code = Code::new(
    "unknown_hostname",
    Kind::NotFound,
    "From a node, instead of a site: no project is served at the hostname. Try again in a minute if you just added it.",
);

/// The path of the metadata of this API as a protected resource (RFC 9728 section 3).
pub(crate) const PROTECTED_RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// Maps a code to its status. The codes of HTTP itself have specific statuses; all others map by kind.
pub(crate) fn status(code: &Code) -> StatusCode {
    if *code == METHOD_NOT_ALLOWED {
        return StatusCode::METHOD_NOT_ALLOWED;
    }
    if *code == UNSUPPORTED_MEDIA_TYPE {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE;
    }
    if *code == REQUEST_TIMEOUT {
        return StatusCode::REQUEST_TIMEOUT;
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
        Kind::PaymentRequired => StatusCode::PAYMENT_REQUIRED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Precondition => StatusCode::PRECONDITION_FAILED,
        Kind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Kind::NotConfigured => StatusCode::NOT_IMPLEMENTED,
        Kind::Upstream => StatusCode::BAD_GATEWAY,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
