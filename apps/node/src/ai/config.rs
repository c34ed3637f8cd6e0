//! The configuration of the upstream of AI models.

use std::time::Duration;

use reqwest::header::HeaderValue;

/// The longest duration of a call, even if its upstream keeps sending single bytes.
const MAX_DURATION: Duration = Duration::from_secs(30 * 60);
/// The longest time until a response begins: the default of OpenAI's SDKs for a whole call.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// The longest time without data within a response.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// The upstream: a server with OpenAI's API (providers.md section 5).
#[derive(Debug, Clone)]
pub struct AiConfig {
    /// The base URL with its version, without a trailing slash.
    pub url: String,
    /// The `Authorization` header; marked as sensitive, so `Debug` does not show it.
    pub authorization: HeaderValue,
    /// The longest duration of a call.
    pub max_duration: Duration,
    /// The longest time until the response begins. The upstream begins a response that is not a stream only when the model
    /// has written all of it.
    pub head_timeout: Duration,
    /// The longest time without data within a response.
    pub silence_timeout: Duration,
}

impl AiConfig {
    /// Returns the configuration of an upstream, with the default timeouts.
    #[must_use]
    pub const fn new(url: String, authorization: HeaderValue) -> Self {
        Self {
            url,
            authorization,
            max_duration: MAX_DURATION,
            head_timeout: HEAD_TIMEOUT,
            silence_timeout: SILENCE_TIMEOUT,
        }
    }
}
