//! Errors of callers who may not perform an operation.

use serde_json::{Value, json};

use crate::{ApiError, Code, Role};

/// The reason why a caller may not perform an operation. The policy of a route returns it. The transaction that commits
/// the change also does, if the caller has lost the permission in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallerError {
    #[error("the credential is unknown, expired or revoked; sign in again")]
    InvalidCredential,
    /// The user is not a member, or the token's restriction excludes the target.
    #[error("you are not a member of this organization, or the token has no access to it")]
    NotAMember,
    #[error("this operation requires the role {minimum}, but you are {role}; ask an admin for that role")]
    RoleTooLow { role: Role, minimum: Role },
}

impl ApiError for CallerError {
    fn code(&self) -> &'static Code {
        match self {
            Self::InvalidCredential => &Code::UNAUTHENTICATED,
            Self::NotAMember | Self::RoleTooLow { .. } => &Code::FORBIDDEN,
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::RoleTooLow { minimum, .. } => Some(json!({ "required": minimum })),
            Self::InvalidCredential | Self::NotAMember => None,
        }
    }
}
