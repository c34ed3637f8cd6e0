//! Reading of a whole body within its time and size limits.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use futures_util::StreamExt as _;

use crate::http::guard;
use crate::problem::Problem;
use crate::protocol;

/// The default limit of a body, in bytes.
pub(crate) const DEFAULT_LIMIT: usize = 64 * 1024;

/// If a body takes longer than this to arrive, its request releases the permit of the concurrency limit until the body
/// is complete.
const PROMPT_BODY_TIMEOUT: Duration = Duration::from_millis(50);

/// The timeout for the arrival of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn expect_content_type(request: &HttpRequest, expected: &str) -> Result<(), Problem> {
    // The names of codings are case-insensitive (RFC 9110 section 8.4.1).
    let mut codings = request.headers().get_all(CONTENT_ENCODING);
    let is_encoded = codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !is_encoded && essence.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let message = format!("send the body as Content-Type: {expected}, without a Content-Encoding");
    let problem = Problem::new(&protocol::UNSUPPORTED_MEDIA_TYPE, message);
    // RFC 9110 section 15.5.16.
    Err(if is_encoded { problem.with_header(ACCEPT_ENCODING, "identity") } else { problem })
}

/// Reads a body of at most `limit` bytes. While a slow body arrives, the request holds no permit of the concurrency
/// limit.
pub(crate) async fn read_in_time(
    request: &HttpRequest,
    payload: &mut Payload,
    limit: usize,
) -> Result<Vec<u8>, Problem> {
    let mut reading = std::pin::pin!(read(payload, limit));
    if let Ok(read) = tokio::time::timeout(PROMPT_BODY_TIMEOUT, &mut reading).await {
        return read;
    }
    guard::release_permit(request);
    let message = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
    let timed_out = |_| Problem::new(&protocol::REQUEST_TIMEOUT, message);
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(timed_out)??;
    guard::require_permit(request)?;
    Ok(read)
}

async fn read(payload: &mut Payload, limit: usize) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| Problem::bad_request(format!("failed to read the body: {error}")))?;
        if bytes.len() + chunk.len() > limit {
            return Err(Problem::too_large(limit as u64));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
