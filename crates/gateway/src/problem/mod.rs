//! The error of a request: its code and message for the client, and its cause for the log.

mod format;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse, web};
use kernel::{ApiError, Code, InvalidFields, Kind, error_chain};
use serde_json::{Value, json};

use crate::protocol;
use crate::request_id::RequestId;

pub use format::ErrorFormat;
pub(crate) use format::{
    BareStatus, Envelope, EnvelopeFormat, ErrorFormats, OauthError, OauthErrors, RenderedMarker, error_format_of,
    find_by_prefix,
};

/// The error of a request.
#[derive(Debug)]
pub struct Problem {
    code: &'static Code,
    message: String,
    /// The details, in a box so that a `Result` with this error stays small.
    details: Option<Box<Value>>,
    headers: Vec<(HeaderName, String)>,
    cause: Option<String>,
}

impl<F: ApiError> From<F> for Problem {
    fn from(failure: F) -> Self {
        let cause = std::error::Error::source(&failure).map(|source| error_chain(source).to_string());
        let mut problem = Self::new(failure.code(), failure.to_string()).with_details(failure.details());
        if let Some(seconds) = failure.retry_after() {
            problem.headers.retain(|(name, _)| name != RETRY_AFTER);
            problem = problem.with_header(RETRY_AFTER, seconds.to_string());
        }
        Self { cause, ..problem }
    }
}

impl Problem {
    /// Returns an error with a human-readable message.
    #[must_use]
    pub fn new(code: &'static Code, message: impl Into<String>) -> Self {
        let problem = Self { code, message: message.into(), details: None, headers: Vec::new(), cause: None };
        match code.kind {
            Kind::Unavailable => problem.with_header(RETRY_AFTER, "1"),
            Kind::Unauthenticated => problem.with_header(WWW_AUTHENTICATE, "Bearer error=\"invalid_token\""),
            _ => problem,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(&Code::BAD_REQUEST, message)
    }

    /// Creates the error 400 of a request with invalid fields.
    pub(crate) fn invalid_fields(fields: impl Into<InvalidFields>) -> Self {
        let fields = fields.into();
        Self::bad_request(fields.to_string()).with_details(Some(fields.details()))
    }

    pub(crate) fn not_found() -> Self {
        Self::new(&Code::NOT_FOUND, "there is no resource at this address")
    }

    /// Creates the error 401 of a request without a credential (RFC 6750 section 3.1).
    pub(crate) fn no_credential() -> Self {
        let message = "the request has no credential; sign in, and send the token as Authorization: Bearer <token>";
        let mut problem = Self::new(&Code::UNAUTHENTICATED, message);
        problem.headers = vec![(WWW_AUTHENTICATE, "Bearer".to_owned())];
        problem
    }

    /// Creates the error 401 of a client that used the header `Authorization` at the token endpoint (RFC 6749 section
    /// 5.2).
    pub(crate) fn invalid_client(message: impl Into<String>) -> Self {
        let mut problem = Self::new(&protocol::INVALID_CLIENT, message);
        problem.headers = vec![(WWW_AUTHENTICATE, "Basic realm=\"oauth\", charset=\"UTF-8\"".to_owned())];
        problem
    }

    pub(crate) fn method_not_allowed(allowed: &str) -> Self {
        let message = format!("this address supports only {allowed}");
        Self::new(&protocol::METHOD_NOT_ALLOWED, message).with_header(ALLOW, allowed)
    }

    pub(crate) fn too_large(limit: u64) -> Self {
        let message = format!("the body is larger than {limit} bytes");
        Self::new(&Code::PAYLOAD_TOO_LARGE, message).with_details(Some(json!({ "limit": limit })))
    }

    /// Creates the error 429 of a caller with too many requests in progress. `of` names what has the limit.
    pub(crate) fn above_limit(message: impl Into<String>, limit: usize, of: &str) -> Self {
        let details = json!({ "limit": limit, "of": of });
        Self::new(&Code::RATE_LIMITED, message).with_details(Some(details)).with_header(RETRY_AFTER, "5")
    }

    pub(crate) fn internal(cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..Self::new(&Code::INTERNAL, "something went wrong on our side") }
    }

    pub(crate) fn with_details(self, details: Option<Value>) -> Self {
        Self { details: details.map(Box::new), ..self }
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Returns whether a retry with the same idempotency key receives this error again. After any other error, the
    /// client can use the key again, even for a corrected request.
    pub(crate) fn is_final(&self) -> bool {
        use Kind::{Conflict, Forbidden, NotFound, PaymentRequired, Unprocessable};
        matches!(self.code.kind, PaymentRequired | Forbidden | NotFound | Conflict | Unprocessable)
    }

    pub(crate) fn code(&self) -> &'static Code {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Logs the cause, which clients do not receive.
    pub(crate) fn log(&self) {
        if protocol::status(self.code) == StatusCode::INTERNAL_SERVER_ERROR {
            let cause = self.cause.as_deref().unwrap_or_default();
            tracing::error!(code = self.code.name, cause, "request failed");
        } else if let Some(cause) = &self.cause {
            tracing::warn!(code = self.code.name, cause, "request rejected");
        }
    }

    pub(crate) fn headers(&self) -> &[(HeaderName, String)] {
        &self.headers
    }

    pub(crate) fn details(&self) -> Option<&Value> {
        self.details.as_deref()
    }

    /// Renders the error in the error format of the request's path, and logs its cause.
    pub(crate) fn respond(&self, request: &HttpRequest) -> HttpResponse {
        self.log();
        let formats = request.app_data::<web::Data<ErrorFormats>>();
        let format = formats.map_or(&EnvelopeFormat as &dyn ErrorFormat, |formats| formats.of(request.path()));
        let mut response = format.render(self, &RequestId::text(request));
        response.extensions_mut().insert(RenderedMarker);
        response
    }
}
