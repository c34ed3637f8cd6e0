//! The access policy of a site, as a visitor meets it.

use actix_web::HttpRequest;
use protocol::{AccessMode, SiteAccess};

use crate::digest::Digest;

/// The header with the key that bypasses a policy, which CI sends.
const BYPASS: &str = "Svc-Access-Bypass";

/// How a visitor gets in.
pub enum Way<'a> {
    /// The site is public.
    Open,
    /// Through the dashboard.
    Dashboard,
    /// By the password with this hash.
    Password(&'a str),
    /// No way that this release knows.
    None,
}

/// How a visitor gets past this policy.
pub fn way(access: &SiteAccess) -> Way<'_> {
    match (access.mode, &access.password) {
        (AccessMode::Public, _) => Way::Open,
        (AccessMode::Org, _) => Way::Dashboard,
        (AccessMode::Password, Some(hash)) => Way::Password(hash),
        (AccessMode::Password, None) | (AccessMode::Unknown, _) => Way::None,
    }
}

/// Whether the request carries the policy's bypass key. Digests are compared, not keys: the time that this takes reveals
/// nothing about a key.
pub fn has_bypass_key(access: &SiteAccess, request: &HttpRequest) -> bool {
    let mut sent = request.headers().get_all(BYPASS);
    let (Some(key), None) = (sent.next(), sent.next()) else { return false };
    access.bypass == Some(Digest::of(key.as_bytes()).hex())
}
