//! The ids that clients give to their requests.

use actix_web::http::header::HeaderMap;

/// Returns the `X-Request-Id` of a request if it is valid: 1 to 64 letters, digits, hyphens, underscores and dots.
#[must_use]
pub fn sent_request_id(headers: &HeaderMap) -> Option<&str> {
    let is_valid = |id: &&str| {
        (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    headers.get("x-request-id").and_then(|value| value.to_str().ok()).filter(is_valid)
}
