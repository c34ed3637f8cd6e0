//! Whom a site lets in (specification, "Access control"; contract section 5).
//!
//! Whoever knocks at a protected site carries the key that passes by its policy, or a [`Pass`] in a cookie, or is shown a
//! way to one: the dashboard's round trip, or the password form. A policy that this release does not know lets nobody in
//! but the key.

mod attempts;
mod door;
mod form;
mod pass;

use actix_web::HttpRequest;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

pub use door::Doors;
use pass::Pass;

/// What CI sends to pass by a policy.
pub const BYPASS: &str = "Svc-Access-Bypass";

/// The policy of a site, as the control plane states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    mode: String,
    /// The password's hash, as a PHC string (Argon2id).
    #[serde(default)]
    password: Option<String>,
    /// SHA-256 of the key, in hex.
    #[serde(default)]
    bypass: Option<String>,
    /// Raised by every change: what was let in before is let in no longer.
    #[serde(default)]
    version: i64,
}

/// How a stranger gets in.
enum Way<'a> {
    /// There is nothing to get past.
    Open,
    /// Through the dashboard.
    Dashboard,
    /// By the password with this hash.
    Password(&'a str),
    /// None that this release knows.
    None,
}

impl Default for Access {
    /// Of a control plane that knows of no policies.
    fn default() -> Self {
        Self { mode: "public".to_owned(), password: None, bypass: None, version: 0 }
    }
}

impl Access {
    /// Whether everybody may see the site.
    pub fn is_public(&self) -> bool {
        matches!(self.way(), Way::Open)
    }

    fn way(&self) -> Way<'_> {
        match (self.mode.as_str(), &self.password) {
            ("public", _) => Way::Open,
            ("org", _) => Way::Dashboard,
            ("password", Some(hash)) => Way::Password(hash),
            _ => Way::None,
        }
    }

    /// Digests are compared, not keys: how long that takes tells nothing of a key.
    fn is_passed_by(&self, request: &HttpRequest) -> bool {
        let mut sent = request.headers().get_all(BYPASS);
        let (Some(key), None) = (sent.next(), sent.next()) else { return false };
        self.bypass == Some(Digest::of(key.as_bytes()).hex())
    }
}
