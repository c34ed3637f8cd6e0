//! What can go wrong with signing in and out.

use kernel::{Code, Failure};

/// A refused request, or a database that is away.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("you have no such session")]
    SessionNotFound,
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Failure for IdentityError {
    fn code(&self) -> &'static Code {
        match self {
            Self::SessionNotFound => &Code::NOT_FOUND,
            Self::Store(error) => error.code(),
        }
    }
}
