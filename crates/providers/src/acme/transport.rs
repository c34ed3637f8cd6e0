//! The calls of an authority, and their errors.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use instant_acme::{BodyWrapper, BytesResponse, Error as LibraryError, HttpClient, Problem};
use kernel::error_chain;
use url::Url;

use super::AcmeError;
use crate::OutboundClient;

/// The maximum length of a message of an authority, in characters.
const MAX_MESSAGE: usize = 400;

/// The prefix of the types of problems (RFC 8555 section 6.7).
const ERROR_PREFIX: &str = "urn:ietf:params:acme:error:";

/// The HTTP client of the library. It remembers the last response, of which the library returns only a part.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    client: OutboundClient,
    last: Arc<Mutex<Exchange>>,
}

/// A request with its response. Without a response, its fields are empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchange {
    /// Whether the directory or a nonce was requested (RFC 8555 sections 7.1.1 and 7.2), which every call needs.
    is_shared: bool,
    pub(super) status: u16,
    /// The seconds in `Retry-After`.
    pub(super) retry_after: Option<i64>,
    pub(super) body: Bytes,
}

impl HttpClient for Transport {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, LibraryError>> + Send>> {
        let this = self.clone();
        Box::pin(async move { this.send(request).await })
    }
}

impl Transport {
    pub(super) fn new(client: OutboundClient) -> Self {
        Self { client, last: Arc::default() }
    }

    async fn send(&self, request: http::Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, LibraryError> {
        let (parts, body) = request.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes().to_vec(),
            Err(never) => match never {},
        };
        let url = Url::parse(&parts.uri.to_string()).map_err(|error| LibraryError::Other(Box::new(error)))?;
        let is_shared = parts.method != Method::POST;
        self.remember(Exchange { is_shared, ..Exchange::default() });
        let exchange = self.client.relay(parts.method, &url, parts.headers, body).await;
        let (status, headers, body) = exchange.map_err(|error| LibraryError::Other(Box::new(error)))?;
        let body = Bytes::from(body);
        let retry_after =
            retry::parse_retry_after(&headers).map(|wait| i64::try_from(wait.as_secs()).unwrap_or(i64::MAX));
        self.remember(Exchange { is_shared, status: status.as_u16(), retry_after, body: body.clone() });
        let mut response = http::Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(BytesResponse { parts: response.into_parts().0, body: Box::new(body) })
    }

    fn remember(&self, exchange: Exchange) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = exchange;
    }

    /// Returns the last request with its response.
    pub(super) fn last(&self) -> Exchange {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Classifies the error of a call by the type of its problem (RFC 8555 section 6.7) and by the status of the
    /// response, because the status in a problem is optional (RFC 7807 section 3.1), and a proxy sends no problem.
    pub(super) fn classify(&self, error: LibraryError) -> AcmeError {
        let Exchange { is_shared, status, retry_after, .. } = self.last();
        let message = match &error {
            LibraryError::Api(problem) => explain(problem),
            _ if status >= 400 => format!("responded with status {status}"),
            error => error_chain(error).to_string(),
        };
        if status == 503 || (status == 429 && is_shared) {
            return AcmeError::Overloaded { message, retry_after };
        }
        let problem = if let LibraryError::Api(problem) = &error { Some(problem) } else { None };
        let is = |kind| problem.is_some_and(|problem| has_type(problem, kind));
        if is("rateLimited") || status == 429 {
            return AcmeError::RateLimited { message, retry_after };
        }
        if is("accountDoesNotExist") {
            return AcmeError::Account(message);
        }
        if problem.is_none() || is("serverInternal") || is("badNonce") || status >= 500 {
            return AcmeError::Unavailable(message);
        }
        AcmeError::Refused(message)
    }
}

/// Returns the message of a problem, without control characters, truncated.
pub(super) fn explain(problem: &Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix(ERROR_PREFIX).unwrap_or(kind);
    let detail = problem.detail.as_deref().unwrap_or("no details");
    let mut text = if kind.is_empty() { detail.to_owned() } else { format!("{detail} ({kind})") };
    for subproblem in &problem.subproblems {
        text.push_str(&format!("; {}", subproblem.detail.as_deref().unwrap_or_default()));
    }
    text.chars().filter(|character| !character.is_control()).take(MAX_MESSAGE).collect()
}

/// Returns whether a problem has this type.
pub(super) fn has_type(problem: &Problem, kind: &str) -> bool {
    problem.r#type.as_deref().and_then(|found| found.strip_prefix(ERROR_PREFIX)) == Some(kind)
}
