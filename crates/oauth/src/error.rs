//! The errors of this context.

use kernel::{ApiError, Code, InvalidField, Kind};
use serde_json::Value;

/// An error of the authorization server. No error contains a code, a token or a secret.
#[derive(Debug, thiserror::Error)]
pub enum OAuthError {
    #[error("sign-in with connected apps is not configured on this installation")]
    NotConfigured,
    #[error("there is no such app")]
    ClientNotFound,
    #[error("you have no such grant")]
    GrantNotFound,
    #[error("there is no such request of a device; it may have expired or be decided already")]
    DeviceRequestNotFound,
    #[error("{0}")]
    InvalidRequest(&'static str),
    #[error("client authentication failed: the client is unknown, or its secret is wrong, missing or unexpected")]
    InvalidClient,
    #[error("{0}")]
    InvalidGrant(&'static str),
    #[error("{0}")]
    UnauthorizedClient(&'static str),
    #[error("the grant type is not supported; use authorization_code, refresh_token or the device code grant")]
    UnsupportedGrantType,
    #[error("the scope is unknown, or exceeds what the client or the grant may have")]
    InvalidScope,
    #[error("the resource must be the audience of this server's access tokens, or absent")]
    InvalidTarget,
    #[error("the user has not decided yet; poll again after the interval")]
    AuthorizationPending,
    #[error("the client polls too often; wait 5 seconds longer between two polls")]
    SlowDown,
    #[error("the user denied the request")]
    AccessDenied,
    #[error("the device code has expired; start again")]
    ExpiredToken,
    #[error("there are already {number} requests of devices; try again in {retry_after} seconds")]
    TooManyDeviceRequests { number: i64, retry_after: i64 },
    #[error("access tokens cannot be signed at the moment; try again in a moment")]
    NoSigningKey,
    #[error("a rotation is in progress: the key {0} does not sign yet; try again after it does")]
    RotationInProgress(kernel::SigningKeyId),
    #[error("there is no such signing key")]
    KeyNotFound,
    #[error(transparent)]
    Field(#[from] InvalidField),
    #[error(transparent)]
    Store(#[from] store::Error),
}

macro_rules! codes {
    ($($name:ident = $text:literal, $kind:ident, $meaning:literal;)+) => {
        impl OAuthError {
            $(
                #[doc = $meaning]
                pub const $name: Code = Code::new($text, Kind::$kind, $meaning);
            )+
        }
    };
}

codes! {
    NOT_CONFIGURED = "oauth_not_configured", Unavailable, "Sign-in with connected apps is not configured.";
    INVALID_REQUEST = "invalid_request", Invalid, "A parameter is missing, repeated or malformed (RFC 6749 section 5.2).";
    INVALID_CLIENT = "invalid_client", Invalid, "The authentication of the client failed (RFC 6749 section 5.2).";
    INVALID_GRANT = "invalid_grant", Invalid, "The code or token is unknown, expired or already used, or belongs to another client (RFC 6749 section 5.2).";
    UNAUTHORIZED_CLIENT = "unauthorized_client", Invalid, "The client may not use this grant type (RFC 6749 section 5.2).";
    UNSUPPORTED_GRANT_TYPE = "unsupported_grant_type", Invalid, "The grant type is not supported (RFC 6749 section 5.2).";
    INVALID_SCOPE = "invalid_scope", Invalid, "The scope is unknown, or exceeds the grant (RFC 6749 section 5.2).";
    INVALID_TARGET = "invalid_target", Invalid, "The resource is not the audience of the access tokens (RFC 8707 section 2).";
    AUTHORIZATION_PENDING = "authorization_pending", Invalid, "The user has not decided yet (RFC 8628 section 3.5).";
    SLOW_DOWN = "slow_down", Invalid, "The client polls too often (RFC 8628 section 3.5).";
    ACCESS_DENIED = "access_denied", Invalid, "The user denied the request (RFC 8628 section 3.5).";
    EXPIRED_TOKEN = "expired_token", Invalid, "The device code has expired (RFC 8628 section 3.5).";
}

impl ApiError for OAuthError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NotConfigured => &Self::NOT_CONFIGURED,
            Self::ClientNotFound | Self::GrantNotFound | Self::DeviceRequestNotFound | Self::KeyNotFound => {
                &Code::NOT_FOUND
            }
            Self::InvalidRequest(_) => &Self::INVALID_REQUEST,
            Self::InvalidClient => &Self::INVALID_CLIENT,
            Self::InvalidGrant(_) => &Self::INVALID_GRANT,
            Self::UnauthorizedClient(_) => &Self::UNAUTHORIZED_CLIENT,
            Self::UnsupportedGrantType => &Self::UNSUPPORTED_GRANT_TYPE,
            Self::InvalidScope => &Self::INVALID_SCOPE,
            Self::InvalidTarget => &Self::INVALID_TARGET,
            Self::AuthorizationPending => &Self::AUTHORIZATION_PENDING,
            Self::SlowDown => &Self::SLOW_DOWN,
            Self::AccessDenied => &Self::ACCESS_DENIED,
            Self::ExpiredToken => &Self::EXPIRED_TOKEN,
            Self::TooManyDeviceRequests { .. } => &Code::RATE_LIMITED,
            Self::NoSigningKey | Self::RotationInProgress(_) => &Code::UNAVAILABLE,
            Self::Field(_) => &Code::BAD_REQUEST,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::Field(invalid) => Some(invalid.details()),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<i64> {
        match self {
            Self::TooManyDeviceRequests { retry_after, .. } => Some(*retry_after),
            Self::Store(error) => error.retry_after(),
            _ => None,
        }
    }
}
