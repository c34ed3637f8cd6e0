//! The error type of records.

use crate::name::labels::NameError;

/// The reason why a text is not valid record data. It completes the sentence "the record …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRecord(pub String);

impl From<NameError> for InvalidRecord {
    fn from(error: NameError) -> Self {
        Self(format!("has a name that {error}"))
    }
}

pub(super) fn reject<T>(reason: impl Into<String>) -> Result<T, InvalidRecord> {
    Err(InvalidRecord(reason.into()))
}
