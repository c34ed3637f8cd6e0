//! The client of the upstream (providers.md section 5).

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde_json::Value;
use tokio::time::timeout;

use super::AiError;
use super::config::AiConfig;
use super::failure::Failure;
use super::request::FIELDS;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest part of an error's body that is read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// The largest part of the upstream's text that is logged, in characters.
const MAX_TEXT: usize = 1_000;
/// The codes of OpenAI's API that are passed on, because code can react to them.
const CODES: [&str; 20] = [
    "array_above_max_length",
    "array_below_min_length",
    "content_filter",
    "content_policy_violation",
    "context_length_exceeded",
    "decimal_above_max_value",
    "decimal_below_min_value",
    "empty_array",
    "empty_string",
    "integer_above_max_value",
    "integer_below_min_value",
    "invalid_image",
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "string_above_max_length",
    "string_below_min_length",
    "unknown_parameter",
    "unsupported_parameter",
    "unsupported_value",
];

/// The upstream.
pub struct Upstream {
    client: Client,
    url: String,
    max_duration: Duration,
    head_timeout: Duration,
    silence_timeout: Duration,
}

/// The body of a response with status 200.
pub struct ResponseBody {
    response: Response,
    silence_timeout: Duration,
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
            .build()?;
        let AiConfig { url, max_duration, head_timeout, silence_timeout, .. } = config.clone();
        Ok(Self { client, url: format!("{url}/chat/completions"), max_duration, head_timeout, silence_timeout })
    }

    /// Returns the longest duration of a call.
    pub const fn max_duration(&self) -> Duration {
        self.max_duration
    }

    /// Sends a request, and repeats it once after a 429. Returns the body of the response if it has status 200 and this
    /// content type.
    ///
    /// # Errors
    /// Returns [`AiError::Rejected`] if the request is at fault, and otherwise [`AiError::NoUpstream`]. Both are free.
    /// Returns [`Failure::Unread`] if the response does not begin in time.
    pub async fn send(&self, body: Vec<u8>, content_type: &'static str) -> Result<ResponseBody, Failure> {
        let request = self.client.post(&self.url).header(ACCEPT, content_type).body(body);
        // The timeout of an attempt includes the body, so it is later than the deadline of the call.
        let attempts = retry::send(request, self.max_duration.saturating_mul(2));
        let sent = timeout(self.head_timeout, attempts).await;
        let response = sent.map_err(|_| Failure::timed_out("no response for too long"))?;
        let response = response.map_err(|error| Failure::failed(&error.without_url().to_string()))?;
        let given = response.headers().get(CONTENT_TYPE).and_then(|given| given.to_str().ok());
        let given = given.and_then(|given| given.split(';').next()).unwrap_or_default().trim();
        match response.status().as_u16() {
            200 if given.eq_ignore_ascii_case(content_type) => {
                Ok(ResponseBody { response, silence_timeout: self.silence_timeout })
            }
            200 => Err(Failure::failed("an unexpected content type")),
            // The cause is the node's key or the key's limits, not the request.
            status @ (401 | 402 | 403 | 407 | 408 | 429) => Err(Failure::failed(&format!("status {status}"))),
            status @ 400..=499 if given.eq_ignore_ascii_case("text/html") => {
                Err(Failure::failed(&format!("a page with status {status}")))
            }
            status @ 400..=499 => Err(Failure::Failed(rejection(status, response, self.silence_timeout).await)),
            status => Err(Failure::failed(&format!("status {status}"))),
        }
    }
}

impl ResponseBody {
    /// Waits for the next chunk. Returns `None` at the end.
    ///
    /// # Errors
    /// Returns [`Failure::Unread`] if the upstream sends nothing for too long, and [`Failure::Interrupted`] if the
    /// connection breaks.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let chunk = timeout(self.silence_timeout, self.response.chunk()).await;
        let chunk = chunk.map_err(|_| Failure::timed_out("a response without data for too long"))?;
        chunk.map_err(|error| Failure::interrupted(&error.without_url().to_string()))
    }
}

/// Returns the error of a request that the upstream rejects. Logs the upstream's text, which is not for worker code. Only
/// a known code and the name of a field are passed on, if the body has OpenAI's shape.
async fn rejection(status: u16, mut response: Response, limit: Duration) -> AiError {
    let mut body = Vec::new();
    let read = async {
        while body.len() < MAX_ERROR_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            body.extend_from_slice(&chunk);
        }
    };
    // After the timeout, the rest of the text is missing.
    let _ = timeout(limit, read).await;
    let text: String = String::from_utf8_lossy(&body).chars().take(MAX_TEXT).collect();
    tracing::debug!(status, text, "the upstream of the AI models rejected a request");
    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
    let member = |name: &str| error.get("error")?.get(name)?.as_str();
    let code = member("code").and_then(|code| CODES.into_iter().find(|known| *known == code));
    // A field within another one is named like `messages[0].content`.
    let field = member("param").and_then(|path| path.split(['.', '[']).next());
    let field = field.and_then(|name| FIELDS.into_iter().find(|known| *known == name));
    AiError::Rejected { status, code: code.unwrap_or("invalid_request"), field }
}
