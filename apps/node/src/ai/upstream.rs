//! The client of the upstream (providers.md section 5).

use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde_json::Value;

use super::config::AiConfig;
use super::{AiError, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time without data from the upstream. A model may think for a long time before its first token.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest body of an error.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// The largest part of the upstream's error message that is passed on, in characters.
const MAX_MESSAGE: usize = 1_000;

/// The upstream.
pub struct Upstream {
    client: Client,
    url: String,
}

impl Upstream {
    /// Redirects and proxies are disabled, so the key is sent only to the configured address.
    pub fn new(config: &AiConfig) -> reqwest::Result<Self> {
        let headers = HeaderMap::from_iter([
            (AUTHORIZATION, config.authorization.clone()),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        let client = Client::builder()
            .default_headers(headers)
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .build()?;
        Ok(Self { client, url: format!("{}/chat/completions", config.url) })
    }

    /// Sends a request. Returns the response if it has status 200 and this content type.
    ///
    /// # Errors
    /// Returns [`AiError::Rejected`] if the request is at fault, and otherwise [`AiError::NoUpstream`].
    pub async fn send(&self, body: Vec<u8>, content_type: &'static str) -> Result<Response> {
        let request = self.client.post(&self.url).header(ACCEPT, content_type).body(body);
        let response = request.send().await.map_err(|error| failed(&error.without_url().to_string()))?;
        match response.status().as_u16() {
            200 => {
                let given = response.headers().get(CONTENT_TYPE).and_then(|given| given.to_str().ok());
                let given = given.and_then(|given| given.split(';').next()).unwrap_or_default().trim();
                if given.eq_ignore_ascii_case(content_type) {
                    Ok(response)
                } else {
                    Err(failed("an unexpected content type"))
                }
            }
            // The cause is the node's key or the key's limits, not the request.
            status @ (401 | 402 | 403 | 407 | 408 | 429) => Err(failed(&format!("status {status}"))),
            status @ 400..=499 => Err(rejection(status, response).await),
            status => Err(failed(&format!("status {status}"))),
        }
    }
}

/// Logs a failure of the upstream.
pub fn failed(reason: &str) -> AiError {
    tracing::warn!(reason, "the upstream of the AI models failed");
    AiError::NoUpstream
}

/// Returns the error of a request that the upstream rejects, with its message if it has OpenAI's shape.
async fn rejection(status: u16, mut response: Response) -> AiError {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ERROR_BYTES {
            return failed("the body of an error is too long");
        }
    }
    let error: Value = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let text = |name: &str| {
        error.get("error")?.get(name).and_then(Value::as_str).map(|text| text.chars().take(MAX_MESSAGE).collect())
    };
    match text("message") {
        Some(message) => AiError::Rejected { status, message, code: text("code") },
        None => failed("an error without a message"),
    }
}
