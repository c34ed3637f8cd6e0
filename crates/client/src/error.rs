//! Errors of calls.

use std::io;
use std::time::Duration;

use serde_json::Value;

use crate::types;

/// An error of a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API returned an error.
    #[error("{}", envelope.message)]
    Api {
        /// The HTTP status.
        status: u16,
        /// The parsed error envelope.
        envelope: Box<types::Error>,
        /// The error envelope as received.
        json: Value,
        /// The value of `Retry-After`, if the response has one.
        retry_after: Option<Duration>,
    },
    /// The response is not from this API, or from an incompatible release.
    #[error("unexpected response: {reason} (HTTP status {status})")]
    Unexpected { status: u16, reason: String },
    /// No response, or an incomplete one.
    #[error("the API is unreachable")]
    Unreachable(#[source] reqwest::Error),
    /// The file to upload cannot be read.
    #[error("failed to read the file to upload")]
    File(#[source] io::Error),
    /// An argument of the call is invalid.
    #[error("{0}")]
    InvalidArgument(String),
    /// The HTTP client or an idempotency key cannot be created on this machine, or a renewed credential cannot be
    /// stored.
    #[error("failed to set up the client: {0}")]
    Setup(String),
}

impl Error {
    /// Returns the error code of an API error.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Api { envelope, .. } => Some(&envelope.code),
            _ => None,
        }
    }

    /// Returns the HTTP status, if there was a response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Api { status, .. } | Self::Unexpected { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the value of `Retry-After`, if the response has one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Converts the error of a request that may not have been sent.
    pub(crate) fn from_send(error: reqwest::Error) -> Self {
        if error.is_builder() {
            return Self::InvalidArgument("the credential, another header or the URL is not valid in HTTP".to_owned());
        }
        Self::unreachable(error)
    }

    /// Removes the URL, which can contain secrets.
    pub(crate) fn unreachable(error: reqwest::Error) -> Self {
        Self::Unreachable(error.without_url())
    }
}
