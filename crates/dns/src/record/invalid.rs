//! Why a record is refused.

use crate::name::labels::NameFault;

/// The reason why a text is not valid record data. It completes the sentence "the record …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRecord(pub String);

impl From<NameFault> for InvalidRecord {
    fn from(fault: NameFault) -> Self {
        Self(format!("has a name that {fault}"))
    }
}

pub(super) fn refuse<T>(why: impl Into<String>) -> Result<T, InvalidRecord> {
    Err(InvalidRecord(why.into()))
}
