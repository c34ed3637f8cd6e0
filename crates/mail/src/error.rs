//! The errors of this context.

use kernel::{ApiError, Code, InvalidField};
use serde_json::Value;

/// An error of the mail service. A mail of a worker that is not sent is a [`crate::Refusal`] instead.
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
    #[error("the mail store did not answer in time; try again in a moment")]
    MailStore(#[source] object_store::Error),
    #[error(transparent)]
    Field(#[from] InvalidField),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl ApiError for MailError {
    fn code(&self) -> &'static Code {
        match self {
            Self::MailNotFound | Self::ProjectNotFound | Self::NoRawMessage => &Code::NOT_FOUND,
            Self::MessageTooLarge { .. } => &Code::PAYLOAD_TOO_LARGE,
            Self::UploadBroken(_) | Self::Field(_) => &Code::BAD_REQUEST,
            Self::MailStore(_) => &Code::UNAVAILABLE,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::MessageTooLarge { limit } => Some(serde_json::json!({ "limit": limit })),
            Self::Field(invalid) => Some(invalid.details()),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }
}
