//! The configuration of the upstream of AI models.

use reqwest::header::HeaderValue;

/// The upstream: a server with OpenAI's API (providers.md section 5).
#[derive(Debug, Clone)]
pub struct AiConfig {
    /// The base URL with its version, without a trailing slash.
    pub url: String,
    /// The `Authorization` header; marked as sensitive, so `Debug` does not show it.
    pub authorization: HeaderValue,
}
