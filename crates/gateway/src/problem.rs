//! A failure on its way to a client: the envelope, and what stays behind in the log.

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};
use kernel::{Code, Failure, Kind};
use serde::Serialize;
use serde_json::{Value, json};

use crate::http::RequestId;
use crate::shape::Fault;
use crate::{pdns, protocol};

/// What every failure looks like (contract section 1, "Error envelope").
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Error)]
pub(crate) struct Envelope<'a> {
    /// What clients read.
    code: &'a str,
    /// For people.
    message: &'a str,
    /// What a program needs to know beyond the code.
    #[schema(required, value_type = Option<Object>)]
    details: &'a Option<Value>,
    /// Also in the `X-Request-Id` header.
    request_id: &'a str,
}

/// A failure, ready to be answered.
#[derive(Debug)]
pub struct Problem {
    code: &'static Code,
    message: String,
    details: Option<Value>,
    headers: Vec<(actix_web::http::header::HeaderName, String)>,
    cause: Option<String>,
}

impl<F: Failure> From<F> for Problem {
    fn from(failure: F) -> Self {
        let causes = std::iter::successors(std::error::Error::source(&failure), |cause| cause.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        let problem = Self::new(failure.code(), failure.to_string()).with_details(failure.details());
        Self { cause: (!causes.is_empty()).then(|| causes.join(": ")), ..problem }
    }
}

impl Problem {
    /// A failure with its message for people.
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

    /// 400 that names every fault.
    pub(crate) fn faults(faults: &[Fault]) -> Self {
        let named = faults.iter().map(|fault| match fault.path.as_str() {
            "" => fault.message.clone(),
            path => format!("{path}: {}", fault.message),
        });
        let message = format!("the request is malformed: {}", named.collect::<Vec<_>>().join("; "));
        Self::bad_request(message).with_details(Some(json!({ "fields": faults })))
    }

    pub(crate) fn not_found() -> Self {
        Self::new(&Code::NOT_FOUND, "there is nothing here under this address")
    }

    /// 401 of a request that came without a credential (RFC 6750 section 3.1).
    pub(crate) fn no_credential() -> Self {
        let message = "sign in first, and send the token as Authorization: Bearer <token>";
        let mut problem = Self::new(&Code::UNAUTHENTICATED, message);
        problem.headers = vec![(WWW_AUTHENTICATE, "Bearer".to_owned())];
        problem
    }

    pub(crate) fn method_not_allowed(allowed: &str) -> Self {
        let message = format!("this address takes {allowed}");
        Self::new(&protocol::METHOD_NOT_ALLOWED, message).with_header(ALLOW, allowed)
    }

    pub(crate) fn too_large(limit: u64) -> Self {
        let message = format!("the body is larger than {limit} bytes");
        Self::new(&Code::PAYLOAD_TOO_LARGE, message).with_details(Some(json!({ "limit": limit })))
    }

    pub(crate) fn internal(cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..Self::new(&Code::INTERNAL, "something went wrong on our side") }
    }

    pub(crate) fn with_details(self, details: Option<Value>) -> Self {
        Self { details, ..self }
    }

    pub(crate) fn with_header(mut self, name: actix_web::http::header::HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Whether it answers the request for good: the same one, sent again, is told the same. Of what is malformed or our
    /// fault nothing came, and the next one may do better.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.code.kind, Kind::Forbidden | Kind::NotFound | Kind::Conflict | Kind::Unprocessable)
    }

    pub(crate) fn code(&self) -> &'static Code {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Tells the log of the cause, which clients are not told of.
    pub(crate) fn log(&self) {
        if protocol::status(self.code) == StatusCode::INTERNAL_SERVER_ERROR {
            let cause = self.cause.as_deref().unwrap_or_default();
            tracing::error!(code = self.code.name, cause, "the request failed");
        } else if let Some(cause) = &self.cause {
            tracing::warn!(code = self.code.name, cause, "the request was refused");
        }
    }

    /// The answer. Causes go to the log under the request id.
    pub(crate) fn respond(&self, request: &HttpRequest) -> HttpResponse {
        self.log();
        if pdns::is_spoken_at(request.path()) {
            return self.respond_as_powerdns();
        }
        let status = protocol::status(self.code);
        let request_id = &RequestId::text(request);
        let mut response = HttpResponse::build(status);
        for (name, value) in &self.headers {
            response.insert_header((name.clone(), value.as_str()));
        }
        response.json(Envelope { code: self.code.name, message: &self.message, details: &self.details, request_id })
    }

    /// The answer in the words of the face that is no part of `/v1`: whatever refuses there, it has one shape.
    fn respond_as_powerdns(&self) -> HttpResponse {
        let status = pdns::status(self.code);
        let mut response = HttpResponse::build(status);
        for (name, value) in self.headers.iter().filter(|(name, _)| *name != WWW_AUTHENTICATE) {
            response.insert_header((name.clone(), value.as_str()));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.insert_header((WWW_AUTHENTICATE, pdns::CHALLENGE));
        }
        response.json(pdns::Refusal { error: &self.message })
    }
}
