//! Errors of users and their credentials.

use kernel::{ApiError, Code, InvalidField, InvalidFields, Kind};
use serde_json::{Value, json};

use crate::ports::CodeHostFailure;

/// An error of the identity service.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("you have no session with this id")]
    SessionNotFound,
    #[error("you have no token with this id")]
    TokenNotFound,
    #[error("you have {count} live tokens, and the limit is {limit}; revoke one that you do not use")]
    TokenLimit { limit: u32, count: i64 },
    #[error("you have no key with this id")]
    KeyNotFound,
    #[error("you have {count} SSH keys, and the limit is {limit}; delete one that you do not use")]
    KeyLimit { limit: u32, count: i64 },
    #[error("the key {0} is already registered, with this account or another; use a separate key for each account")]
    KeyExists(String),
    #[error(transparent)]
    Fields(#[from] InvalidFields),
    #[error("this sign-in has expired or was started in another browser; start again")]
    UnknownLogin,
    #[error("the sign-in was declined at the code host; start again")]
    LoginRefused,
    #[error(transparent)]
    CodeHost(#[from] CodeHostFailure),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl IdentityError {
    /// 409: the key to add is already registered.
    pub const SSH_KEY_EXISTS: Code = Code::new(
        "ssh_key_exists",
        Kind::Conflict,
        "The public key is already registered, with this account or another.",
    );
    /// 409: the user has too many SSH keys.
    pub const SSH_KEY_LIMIT: Code = Code::new(
        "ssh_key_limit",
        Kind::Conflict,
        "The user has reached the limit of SSH keys. `details` contains `limit` and `count`.",
    );
    /// 409: the user has too many valid tokens (contract section 1, "Plan limits").
    pub const TOKEN_LIMIT: Code = Code::new(
        "token_limit",
        Kind::Conflict,
        "The user has reached the limit of live tokens. `details` contains `limit` and `count`.",
    );
    /// Sent in the fragment of the redirect: the user declined the sign-in, or the code host rejected its code.
    pub const ACCESS_DENIED: Code = Code::new(
        "access_denied",
        Kind::Forbidden,
        "In the fragment of the redirect after a sign-in: the user declined it, or the code host rejected its code.",
    );
    /// Sent in the fragment of the redirect: the code host is unreachable, or returned an error or an invalid response.
    pub const CODEHOST_UNAVAILABLE: Code = Code::new(
        "codehost_unavailable",
        Kind::Unavailable,
        "In the fragment of the redirect after a sign-in: the code host is unreachable, returned an error or sent an \
         invalid response. Try again.",
    );
}

impl From<InvalidField> for IdentityError {
    fn from(field: InvalidField) -> Self {
        Self::Fields(field.into())
    }
}

impl ApiError for IdentityError {
    fn code(&self) -> &'static Code {
        match self {
            Self::SessionNotFound | Self::TokenNotFound | Self::KeyNotFound => &Code::NOT_FOUND,
            Self::KeyExists(_) => &Self::SSH_KEY_EXISTS,
            Self::KeyLimit { .. } => &Self::SSH_KEY_LIMIT,
            Self::TokenLimit { .. } => &Self::TOKEN_LIMIT,
            Self::Fields(_) | Self::UnknownLogin => &Code::BAD_REQUEST,
            Self::LoginRefused | Self::CodeHost(CodeHostFailure::Refused(_)) => &Self::ACCESS_DENIED,
            Self::CodeHost(CodeHostFailure::Unavailable(_)) => &Self::CODEHOST_UNAVAILABLE,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::Fields(invalid) => Some(invalid.details()),
            Self::TokenLimit { limit, count } | Self::KeyLimit { limit, count } => {
                Some(json!({ "limit": limit, "count": count }))
            }
            Self::Store(error) => error.details(),
            _ => None,
        }
    }
}
