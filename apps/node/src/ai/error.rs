//! The errors of `env.ai`, in OpenAI's shape.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::RETRY_AFTER;
use bytes::Bytes;
use protocol::{RefusalCode, RefusedCall};
use serde_json::{Value, json};

/// An error of a call. The call is free, unless the upstream's response began and did not end, or the node did not read
/// it to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AiError {
    /// 400: the request is malformed.
    #[error("{0}")]
    InvalidRequest(String),
    /// 404: `env.ai.fetch` has no such endpoint.
    #[error("The endpoints are POST /v1/chat/completions and GET /v1/models.")]
    UnknownEndpoint,
    /// The control plane refused the call.
    #[error("{message}")]
    Refused { code: RefusalCode, message: String, retry_after: Option<u32> },
    /// The upstream rejected the request with a 4xx.
    #[error("The upstream rejects the request with status {status}. Check {}.", field.unwrap_or("its fields"))]
    Rejected { status: u16, code: &'static str, field: Option<&'static str> },
    /// 503: the upstream is not configured, or failed.
    #[error("The upstream of the AI models is not available. Try again later.")]
    NoUpstream,
    /// 503: the upstream did not respond in time, or the call took too long.
    #[error("The AI model did not respond in time. Try a shorter request or a stream, or try again later.")]
    TimedOut,
    /// 503: there is no memory for the request, because other requests use it.
    #[error("Too many large requests are in progress. Try again later, or send smaller ones.")]
    NoMemory,
    /// 503: there is no memory for the response, because code does not read other responses.
    #[error("Too many responses are in progress or not read. Read or cancel them, and try again later.")]
    NoResponseMemory,
    /// The caller left before the response began, so it does not receive this error.
    #[error("The caller left before the response.")]
    Abandoned,
    /// 503: the control plane could not be asked to admit the call or to list the models.
    #[error("Calls of AI models cannot be admitted at the moment. Try again later.")]
    NoCore,
}

impl From<RefusedCall> for AiError {
    fn from(RefusedCall { code, message, retry_after }: RefusedCall) -> Self {
        Self::Refused { code, message, retry_after }
    }
}

impl AiError {
    /// Returns the code in the response.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidRequest(_) => "invalid_request",
            Self::UnknownEndpoint => "unknown_endpoint",
            Self::Refused { code, .. } => match code {
                RefusalCode::ModelNotFound => "model_not_found",
                RefusalCode::ContextLengthExceeded => "context_length_exceeded",
                RefusalCode::InsufficientCredit => "insufficient_credit",
                RefusalCode::RateLimited => "rate_limited",
                RefusalCode::SpendLimit => "spend_limit",
                RefusalCode::NotGranted => "not_granted",
            },
            Self::Rejected { code, .. } => code,
            Self::Abandoned => "abandoned",
            Self::NoUpstream | Self::TimedOut | Self::NoMemory | Self::NoResponseMemory | Self::NoCore => "no_upstream",
        }
    }

    /// Returns the outcome for the metrics: the code, unless the upstream chose it or the call timed out.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Rejected { .. } => "rejected",
            Self::TimedOut => "timed_out",
            Self::NoMemory | Self::NoResponseMemory => "no_memory",
            _ => self.code(),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::InvalidRequest(_) => StatusCode::BAD_REQUEST,
            Self::UnknownEndpoint => StatusCode::NOT_FOUND,
            Self::Refused { code, .. } => match code {
                RefusalCode::ModelNotFound | RefusalCode::ContextLengthExceeded => StatusCode::BAD_REQUEST,
                RefusalCode::InsufficientCredit => StatusCode::PAYMENT_REQUIRED,
                RefusalCode::RateLimited | RefusalCode::SpendLimit => StatusCode::TOO_MANY_REQUESTS,
                RefusalCode::NotGranted => StatusCode::FORBIDDEN,
            },
            Self::Rejected { status, .. } => StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_REQUEST),
            Self::NoUpstream
            | Self::TimedOut
            | Self::NoMemory
            | Self::NoResponseMemory
            | Self::Abandoned
            | Self::NoCore => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the response: `{ error: { message, type, code } }`.
    pub fn response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status());
        if let Self::Refused { retry_after: Some(seconds), .. } = self {
            response.insert_header((RETRY_AFTER, seconds.to_string()));
        }
        response.json(self.body())
    }

    /// Returns the error as an event of a stream. OpenAI's SDKs throw it.
    pub fn event(&self) -> Bytes {
        format!("data: {}\n\n", self.body()).into()
    }

    fn body(&self) -> Value {
        let kind = match self.status().as_u16() {
            402 => "insufficient_quota",
            429 => "rate_limit_error",
            503 => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.to_string(), "type": kind, "code": self.code() } })
    }
}
