//! What can go wrong with signing in and out.

use kernel::{Code, Failure};

/// A database that is away; nothing else fails once a request has the right shape.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Failure for IdentityError {
    fn code(&self) -> &'static Code {
        match self {
            Self::Store(error) => error.code(),
        }
    }
}
