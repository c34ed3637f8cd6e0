//! What can go wrong with a call.

use std::io;
use std::time::Duration;

use serde_json::Value;

use crate::types;

/// Why a call has no answer to give.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API says no.
    #[error("{}", envelope.message)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What every failure of the API looks like.
        envelope: Box<types::Error>,
        /// The same as it was answered.
        json: Value,
        /// When to come back, where the API says it.
        retry_after: Option<Duration>,
    },
    /// Something answered that is not this API, or is another release of it than this client reads.
    #[error("unexpected answer: {what} (HTTP status {status})")]
    Unexpected { status: u16, what: String },
    /// There was no answer, or only a part of one.
    #[error("the API cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// The file to send cannot be read.
    #[error("the file to send cannot be read")]
    File(#[source] io::Error),
    /// The call makes no sense.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// The API's code for it, where it is the API that says no.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { envelope, .. } => Some(&envelope.code),
            _ => None,
        }
    }

    /// The HTTP status, where there was an answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Unexpected { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// When to come back, where the API says it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// An address may hold what is nobody's business.
    pub(crate) fn unreachable(error: reqwest::Error) -> Self {
        Self::Unreachable(error.without_url())
    }
}
