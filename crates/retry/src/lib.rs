//! Requests that are repeated once if the server rejects them with 429 (providers.md, "Rules for all providers"). A 429
//! means that the server did not execute the request, so the repetition is safe for every method.

use std::time::Duration;

use chrono::DateTime;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode};
use tokio::time::Instant;

/// The longest `Retry-After` after which a request is repeated.
const MAX_DELAY: Duration = Duration::from_secs(2);
/// The delay after a 429 without `Retry-After`.
const DEFAULT_DELAY: Duration = Duration::from_secs(1);

/// Sends a request. Repeats it once after a 429, unless the delay is too long. The timeout includes the repetition, and
/// the body of the response.
///
/// # Errors
/// Returns an error if there is no response.
pub async fn send(request: RequestBuilder, timeout: Duration) -> reqwest::Result<Response> {
    let (started, repetition) = (Instant::now(), request.try_clone());
    let response = request.timeout(timeout).send().await?;
    let Some((repetition, delay)) = repetition.zip(retry_delay_of(&response)) else { return Ok(response) };
    let Some(timeout) = timeout.checked_sub(started.elapsed() + delay) else { return Ok(response) };
    drop(response);
    tokio::time::sleep(delay).await;
    repetition.timeout(timeout).send().await
}

fn retry_delay_of(response: &Response) -> Option<Duration> {
    let delay = parse_retry_after(response.headers()).unwrap_or(DEFAULT_DELAY);
    (response.status() == StatusCode::TOO_MANY_REQUESTS && delay <= MAX_DELAY).then_some(delay)
}

/// Returns the wait that `Retry-After` states: a number of seconds, or a time, which is compared with the header `Date`
/// (RFC 9110 section 10.2.3). A time in the past is zero.
#[must_use]
pub fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let value = text(RETRY_AFTER)?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (until, now) = (DateTime::parse_from_rfc2822(value).ok()?, DateTime::parse_from_rfc2822(text(DATE)?).ok()?);
    Some((until - now).to_std().unwrap_or_default())
}
