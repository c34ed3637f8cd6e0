//! The errors of this context.

use kernel::{Code, Failure};

/// A database that is away.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Failure for ResourceError {
    fn code(&self) -> &'static Code {
        match self {
            Self::Store(error) => error.code(),
        }
    }
}
