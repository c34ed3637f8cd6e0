//! The errors of this context.

use kernel::{ApiError, Code};
use serde_json::Value;

/// An error of the service for nodes.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("there is no such certificate")]
    NotFound,
    #[error("there is no order with this token for this host")]
    NoChallenge,
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl ApiError for CertificateError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NotFound | Self::NoChallenge => &Code::NOT_FOUND,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::Store(error) => error.details(),
            Self::NotFound | Self::NoChallenge => None,
        }
    }
}
