//! Requests with a credential, and their responses.

use std::time::Duration;

use chrono::DateTime;
use kernel::Secret;
use reqwest::Method;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use serde::de::DeserializeOwned;
use url::Url;

use super::error::OutboundError;

/// The longest `Retry-After` of a 429 after which a client repeats a call.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(2);

/// A request with a credential.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) credential: Credential<'a>,
    /// An additional header.
    pub(crate) header: Option<(&'static str, &'a str)>,
    /// JSON.
    pub(crate) body: Option<&'a str>,
}

/// The credential of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Credential<'a> {
    Bearer(&'a Secret),
    /// HTTP Basic (RFC 7617).
    Basic {
        user: &'a str,
        password: &'a Secret,
    },
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: u16,
    /// The wait that `Retry-After` states.
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

impl Exchange {
    /// Parses the body of a successful response.
    ///
    /// # Errors
    /// Returns [`OutboundError::Status`] or [`OutboundError::NotJson`].
    pub(crate) fn success<T: DeserializeOwned>(&self) -> Result<T, OutboundError> {
        if (200..300).contains(&self.status) { self.parse() } else { Err(OutboundError::Status(self.status)) }
    }

    /// Parses the body, whatever the status.
    ///
    /// # Errors
    /// Returns [`OutboundError::NotJson`].
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, OutboundError> {
        serde_json::from_slice(&self.body).map_err(|_| OutboundError::NotJson)
    }

    /// Returns the delay after which the request is repeated once. Only a 429 with a short `Retry-After` is repeated.
    pub(super) fn retry_delay(&self) -> Option<Duration> {
        self.retry_after.filter(|wait| self.status == 429 && *wait <= MAX_RETRY_AFTER)
    }
}

/// Returns the wait that `Retry-After` states: a number of seconds, or a time, which is compared with the header `Date`
/// (RFC 9110 section 10.2.3). A time in the past is zero.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let value = text(RETRY_AFTER)?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (until, now) = (DateTime::parse_from_rfc2822(value).ok()?, DateTime::parse_from_rfc2822(text(DATE)?).ok()?);
    Some((until - now).to_std().unwrap_or_default())
}
