//! The claims of an access token.

use kernel::{ClientId, GrantId, ScopeSet, Time, UserId};

/// The claims of a token to sign, in addition to the issuer and the audience.
#[derive(Debug, Clone, Copy)]
pub struct Claims {
    pub user: UserId,
    pub client: ClientId,
    pub grant: GrantId,
    pub scopes: ScopeSet,
    pub issued_at: Time,
    pub expires_at: Time,
}

/// A token whose signature and claims are valid. Its grant may no longer exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedToken {
    pub user: UserId,
    pub client: ClientId,
    pub grant: GrantId,
    pub scopes: ScopeSet,
    pub expires_at: Time,
}
