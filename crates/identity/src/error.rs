//! What can go wrong with users and their credentials.

use kernel::{Code, Failure, Kind, Malformed};
use serde_json::Value;

use crate::ports::CodeHostFailure;

/// A refused request, or a database that is away.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("you have no such session")]
    SessionNotFound,
    #[error("you have no such token")]
    TokenNotFound,
    #[error("you have no such key")]
    KeyNotFound,
    #[error("the key {0} is registered already, here or with another account; make one of your own for each")]
    KeyExists(String),
    #[error(transparent)]
    Field(#[from] Malformed),
    #[error("this sign-in is not one that this browser began within the last ten minutes; start again")]
    UnknownLogin,
    #[error("you did not sign in at the code host; start again")]
    LoginRefused,
    #[error(transparent)]
    CodeHost(#[from] CodeHostFailure),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl IdentityError {
    /// 409: a key that is known.
    pub const SSH_KEY_EXISTS: Code =
        Code::new("ssh_key_exists", Kind::Conflict, "The public key is registered, with this account or another.");
    /// Told in the fragment of the callback: whoever sits before the browser declined, or the code host did.
    pub const ACCESS_DENIED: Code =
        Code::new("access_denied", Kind::Forbidden, "The sign-in was declined at the code host.");
    /// Told in the fragment of the callback: the code host is away or talks nonsense.
    pub const CODEHOST_UNAVAILABLE: Code =
        Code::new("codehost_unavailable", Kind::Unavailable, "The code host did not answer as it should; try again.");
}

impl Failure for IdentityError {
    fn code(&self) -> &'static Code {
        match self {
            Self::SessionNotFound | Self::TokenNotFound | Self::KeyNotFound => &Code::NOT_FOUND,
            Self::KeyExists(_) => &Self::SSH_KEY_EXISTS,
            Self::Field(_) | Self::UnknownLogin => &Code::BAD_REQUEST,
            Self::LoginRefused | Self::CodeHost(CodeHostFailure::Refused(_)) => &Self::ACCESS_DENIED,
            Self::CodeHost(CodeHostFailure::Unavailable(_)) => &Self::CODEHOST_UNAVAILABLE,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::Field(malformed) => Some(malformed.details()),
            _ => None,
        }
    }
}
