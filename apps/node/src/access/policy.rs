//! How a request satisfies a site's access policy.

use actix_web::HttpRequest;
use protocol::{AccessMode, SiteAccess};

use crate::digest::Digest;

/// The header with the key that bypasses a policy. CI jobs send it.
const BYPASS: &str = "Svc-Access-Bypass";

/// How a visitor signs in.
pub enum Challenge<'a> {
    /// The site is public: no sign-in.
    Open,
    /// Sign-in through the dashboard.
    Dashboard,
    /// The password with this hash.
    Password(&'a str),
    /// This release does not know the policy.
    Unsupported,
}

/// Returns the challenge of this policy.
pub fn required_challenge(access: &SiteAccess) -> Challenge<'_> {
    match (access.mode, &access.password) {
        (AccessMode::Public, _) => Challenge::Open,
        (AccessMode::Org, _) => Challenge::Dashboard,
        (AccessMode::Password, Some(hash)) => Challenge::Password(hash),
        (AccessMode::Password, None) | (AccessMode::Unknown, _) => Challenge::Unsupported,
    }
}

/// Returns whether the request carries the policy's bypass key. Digests are compared instead of keys, so that timing
/// does not reveal the key.
pub fn has_bypass_key(access: &SiteAccess, request: &HttpRequest) -> bool {
    let mut sent = request.headers().get_all(BYPASS);
    let (Some(key), None) = (sent.next(), sent.next()) else { return false };
    access.bypass == Some(Digest::of(key.as_bytes()).hex())
}
