//! Errors of the object storage, as worker code sees them.

use std::fmt::Display;

/// Why an operation failed. [`Self::code`] and the message are the `code` and the message of the `Error` that worker
/// code catches (spec/runtime.md, `env.storage`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The key breaks a rule of keys.
    #[error("{0}")]
    InvalidKey(&'static str),
    /// An argument other than the key is invalid.
    #[error("{0}")]
    InvalidArgument(&'static str),
    /// The object does not fit into the project's quota.
    #[error("The object does not fit into the project's quota of {0} bytes. Delete objects, or upgrade the plan.")]
    QuotaExceeded(u64),
    /// The project has as many objects as its quota allows. The number is limited because each object takes space in
    /// the index.
    #[error("The project has {0} objects, as many as its quota allows. Delete objects, or upgrade the plan.")]
    TooManyObjects(u64),
    /// The blobs of replaced or deleted objects still take too much space.
    #[error(
        "The content of the project's replaced and deleted objects still takes too much space, because it is being \
         deleted or read. Try again in a minute."
    )]
    Undeleted,
    /// The grant was revoked during the operation.
    #[error("The project no longer has this binding. Enable it again.")]
    NotGranted,
    /// The store, the index or the sender of a stream failed or did not respond in time.
    #[error("{0}")]
    Unavailable(&'static str),
}

pub type Result<T> = std::result::Result<T, StorageError>;

impl StorageError {
    pub const NOT_CONFIGURED: Self =
        Self::Unavailable("This node has no object storage. Ask the operator to set SVC_NODE_STORAGE.");
    pub const FAILED: Self = Self::Unavailable("The object storage is not available. Try again later.");
    pub const TIMED_OUT: Self = Self::Unavailable("The object storage did not respond in time. Try again later.");
    pub const PREPARING: Self =
        Self::Unavailable("The object storage is being prepared on this node. Try again in a minute.");
    pub const DAMAGED: Self =
        Self::Unavailable("The content of this object is missing in the store. Contact the operator.");
    pub const BUSY: Self = Self::Unavailable("Too many large calls are in progress. Try again later.");
    pub const TOO_MANY_CHANGES: Self =
        Self::Unavailable("The object storage has too many changes to write. Try again later.");
    pub const INPUT_FAILED: Self =
        Self::Unavailable("The stream ended with an error or was interrupted, so nothing was stored.");
    pub const INPUT_TOO_SLOW: Self =
        Self::Unavailable("The stream delivered less than 16 KiB per second, so nothing was stored.");
    pub const NOT_READ: Self = Self::Unavailable("The content was not read for too long. Get the object again.");

    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidKey(_) => "invalid_key",
            Self::InvalidArgument(_) => "invalid_argument",
            Self::QuotaExceeded(_) | Self::TooManyObjects(_) | Self::Undeleted => "quota_exceeded",
            Self::NotGranted => "not_granted",
            Self::Unavailable(_) => "storage_unavailable",
        }
    }
}

/// Logs the cause of a failure that worker code must not see.
pub fn failed<E: Display>(operation: &'static str) -> impl FnOnce(E) -> StorageError {
    move |error| {
        tracing::error!(operation, error = format!("{error:#}"), "the object storage failed");
        StorageError::FAILED
    }
}
