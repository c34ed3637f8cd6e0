//! The errors of this context.

use kernel::{ApiError, Code};

/// An error of the resources service.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl ApiError for ResourceError {
    fn code(&self) -> &'static Code {
        match self {
            Self::Store(error) => error.code(),
        }
    }
}
