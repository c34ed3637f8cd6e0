//! Error formats: how an error is written to the client. Each path prefix may have its own format.

use actix_web::HttpResponse;
use actix_web::http::header::{HeaderValue, PRAGMA};
use kernel::{Code, Kind};
use serde::Serialize;
use serde_json::Value;

use super::Problem;
use crate::protocol;

/// Writes an error to the client.
pub trait ErrorFormat: Send + Sync {
    /// Returns the name of the component of the OpenAPI document that describes the body, and its field with the code.
    /// Returns `None` for a response without a body.
    fn schema(&self) -> Option<(&'static str, &'static str)>;

    /// Returns the name that a code has in the body, and its meaning there. Without a body, only the meaning applies.
    fn wire_code(&self, code: &Code) -> (&'static str, &'static str) {
        (code.name, code.meaning)
    }

    /// Returns the response, with the problem's headers.
    fn render(&self, problem: &Problem, request_id: &str) -> HttpResponse;
}

/// The error formats of a listener, by prefix of the path.
pub(crate) struct ErrorFormats(pub(crate) Vec<(&'static str, &'static dyn ErrorFormat)>);

impl ErrorFormats {
    /// Returns the format for the longest matching prefix of whole path segments, or the envelope if none matches.
    pub(crate) fn of(&self, path: &str) -> &'static dyn ErrorFormat {
        error_format_of(&self.0, path)
    }
}

/// Returns the format for the longest matching prefix of whole path segments, or the envelope if none matches.
pub(crate) fn error_format_of(
    formats: &[(&'static str, &'static dyn ErrorFormat)],
    path: &str,
) -> &'static dyn ErrorFormat {
    find_by_prefix(formats, path).map_or(&EnvelopeFormat, |format| *format)
}

/// Returns the entry for the longest matching prefix of whole path segments, if one matches.
pub(crate) fn find_by_prefix<'a, T>(entries: &'a [(&'static str, T)], path: &str) -> Option<&'a T> {
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let prefixes = entries.iter().filter(|(prefix, _)| is_below(prefix));
    prefixes.max_by_key(|(prefix, _)| prefix.len()).map(|(_, entry)| entry)
}

/// Marks a response that an error format rendered.
pub(crate) struct RenderedMarker;

/// The default body of an error response (contract section 1, "Error envelope").
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Error)]
pub(crate) struct Envelope<'a> {
    /// The machine-readable error code.
    code: &'a str,
    /// A human-readable explanation.
    message: &'a str,
    /// Additional data for programs.
    #[schema(required, value_type = Option<Object>)]
    details: Option<&'a Value>,
    /// The id of the request, as in the `X-Request-Id` header.
    request_id: &'a str,
}

/// The error envelope.
pub(crate) struct EnvelopeFormat;

impl ErrorFormat for EnvelopeFormat {
    fn schema(&self) -> Option<(&'static str, &'static str)> {
        Some(("Error", "code"))
    }

    fn render(&self, problem: &Problem, request_id: &str) -> HttpResponse {
        let envelope =
            Envelope { code: problem.code().name, message: problem.message(), details: problem.details(), request_id };
        with_headers(problem).json(envelope)
    }
}

/// A status without a body, which is the format of webhooks (specification, "Errors").
pub(crate) struct BareStatus;

impl ErrorFormat for BareStatus {
    fn schema(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    fn wire_code(&self, code: &Code) -> (&'static str, &'static str) {
        // The meanings of these codes name `details`, which the response does not have.
        let meaning = if *code == Code::BAD_REQUEST {
            "The request is malformed."
        } else if *code == Code::PAYLOAD_TOO_LARGE {
            "The body is too large."
        } else {
            code.meaning
        };
        (code.name, meaning)
    }

    fn render(&self, problem: &Problem, _: &str) -> HttpResponse {
        with_headers(problem).finish()
    }
}

/// OAuth 2.0's error body (RFC 6749 section 5.2).
pub(crate) struct OauthErrors;

/// The body of an error at `/oauth` (RFC 6749 section 5.2).
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = OAuthError)]
#[schema(example = json!({ "error": "invalid_grant", "error_description": "the refresh token is unknown or used" }))]
pub(crate) struct OauthError<'a> {
    /// The machine-readable error code.
    error: &'a str,
    /// A human-readable explanation.
    error_description: &'a str,
}

/// The error codes that have a meaning in RFC 6749 (sections 4.1.2.1 and 5.2), RFC 7009, RFC 8628 and
/// RFC 8707.
const OAUTH_CODES: &[&str] = &[
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "invalid_scope",
    "invalid_target",
    "unauthorized_client",
    "unsupported_grant_type",
    "unsupported_token_type",
    "authorization_pending",
    "slow_down",
    "access_denied",
    "expired_token",
];

impl ErrorFormat for OauthErrors {
    fn schema(&self) -> Option<(&'static str, &'static str)> {
        Some(("OAuthError", "error"))
    }

    fn wire_code(&self, code: &Code) -> (&'static str, &'static str) {
        match code.kind {
            _ if OAUTH_CODES.contains(&code.name) => (code.name, code.meaning),
            Kind::Unauthenticated => ("invalid_client", code.meaning),
            Kind::RateLimited => ("temporarily_unavailable", code.meaning),
            Kind::Upstream | Kind::Unavailable => (
                "temporarily_unavailable",
                "The database is unavailable, the server is at capacity, or sign-in with connected apps is not \
                 configured.",
            ),
            Kind::Internal => ("server_error", code.meaning),
            // The meanings of these codes name `details`, which the body does not have.
            Kind::TooLarge => ("invalid_request", "The body is too large."),
            Kind::Invalid if *code == Code::BAD_REQUEST => {
                ("invalid_request", oauth::OAuthError::INVALID_REQUEST.meaning)
            }
            Kind::Invalid
            | Kind::PaymentRequired
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::Conflict
            | Kind::Precondition
            | Kind::Unprocessable
            | Kind::NotConfigured => ("invalid_request", code.meaning),
        }
    }

    fn render(&self, problem: &Problem, _: &str) -> HttpResponse {
        let (error, _) = self.wire_code(problem.code());
        let mut response = with_headers(problem);
        response.insert_header((PRAGMA, HeaderValue::from_static("no-cache")));
        // Only these characters are allowed by RFC 6749 section 5.2.
        let allowed = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
        let description: String = problem.message().chars().map(|c| if allowed(c) { c } else { '?' }).collect();
        response.json(OauthError { error, error_description: &description })
    }
}

/// Starts a response with the status and the headers of an error.
fn with_headers(problem: &Problem) -> actix_web::HttpResponseBuilder {
    let mut response = HttpResponse::build(protocol::status(problem.code()));
    for (name, value) in problem.headers() {
        response.insert_header((name.clone(), value.as_str()));
    }
    response
}
