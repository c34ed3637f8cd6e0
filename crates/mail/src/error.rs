//! The errors of this context.

use std::sync::Arc;

use kernel::{ApiError, Code, InvalidField, Kind};
use serde_json::Value;
use webhooks::sns::InvalidSnsMessage;

use crate::ports::ServiceUnavailable;

/// An error of the mail service. If a worker's mail is refused, the result is a [`crate::Refusal`] instead.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    #[error("the project has no such mail")]
    MailNotFound,
    #[error("there is no such project")]
    ProjectNotFound,
    #[error("the raw message is not stored")]
    NoRawMessage,
    #[error("a message can have at most {limit} bytes")]
    MessageTooLarge { limit: u64 },
    #[error("failed to read the body: {0}")]
    UploadBroken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the message was not uploaded, or has another size than the mail; upload the message again")]
    UploadMismatch,
    #[error("the mail store did not answer in time; try again in a moment")]
    MailStore(#[source] object_store::Error),
    #[error(transparent)]
    Field(#[from] InvalidField),
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The error of a transaction that several requests share.
    #[error(transparent)]
    Shared(Arc<Self>),
}

impl MailError {
    /// 409: the uploaded message is missing, or has another size.
    pub const UPLOAD_MISMATCH: Code = Code::new(
        "upload_mismatch",
        Kind::Conflict,
        "The message of the mail was not uploaded, or has another size. Upload the message again.",
    );
}

impl ApiError for MailError {
    fn code(&self) -> &'static Code {
        match self {
            Self::MailNotFound | Self::ProjectNotFound | Self::NoRawMessage => &Code::NOT_FOUND,
            Self::MessageTooLarge { .. } => &Code::PAYLOAD_TOO_LARGE,
            Self::UploadBroken(_) | Self::Field(_) => &Code::BAD_REQUEST,
            Self::UploadMismatch => &Self::UPLOAD_MISMATCH,
            Self::MailStore(_) => &Code::UNAVAILABLE,
            Self::Store(error) => error.code(),
            Self::Shared(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::MessageTooLarge { limit } => Some(serde_json::json!({ "limit": limit })),
            Self::Field(invalid) => Some(invalid.details()),
            Self::Store(error) => error.details(),
            Self::Shared(error) => error.details(),
            _ => None,
        }
    }
}

/// The reason why a message of the notification service is rejected. The service receives only the status.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// 501: no topic is configured.
    #[error("no topic of the mail hook is configured")]
    Off,
    /// 400: the body is not a message.
    #[error(transparent)]
    Malformed(InvalidSnsMessage),
    /// 403: the message belongs to another topic, names another host, or has no valid signature.
    #[error(transparent)]
    NotAuthentic(InvalidSnsMessage),
    /// 503: the certificate could not be fetched, or the subscription could not be confirmed. The service sends the
    /// message again.
    #[error(transparent)]
    Unavailable(#[from] ServiceUnavailable),
    #[error(transparent)]
    Mail(#[from] MailError),
}

impl HookError {
    /// 501: the mail hook is not configured.
    pub const OFF: Code =
        Code::new("mail_hook_off", Kind::NotConfigured, "No topic of delivery notifications is configured here.");
    /// 403: the message is not authentic.
    pub const NOT_AUTHENTIC: Code = Code::new(
        "notification_not_authentic",
        Kind::Forbidden,
        "The topic, the certificate or the signature of the delivery notification is invalid.",
    );
}

impl From<InvalidSnsMessage> for HookError {
    fn from(error: InvalidSnsMessage) -> Self {
        if error.is_malformed() { Self::Malformed(error) } else { Self::NotAuthentic(error) }
    }
}

impl ApiError for HookError {
    fn code(&self) -> &'static Code {
        match self {
            Self::Off => &Self::OFF,
            Self::Malformed(_) => &Code::BAD_REQUEST,
            Self::NotAuthentic(_) => &Self::NOT_AUTHENTIC,
            Self::Unavailable(_) => &Code::UNAVAILABLE,
            Self::Mail(error) => error.code(),
        }
    }
}
