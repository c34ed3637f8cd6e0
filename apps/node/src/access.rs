//! Whom a site lets in.
//!
//! This release knows two answers for a site that is not public: the key that passes by its policy, and no. A policy that
//! it does not know is not public either.

use actix_web::HttpRequest;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// What CI sends to pass by a policy.
const BYPASS: &str = "Svc-Access-Bypass";

/// The policy of a site, as the control plane states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    mode: String,
    /// SHA-256 of the key, in hex.
    #[serde(default)]
    bypass: Option<String>,
}

impl Default for Access {
    /// Of a control plane that knows of no policies.
    fn default() -> Self {
        Self { mode: "public".to_owned(), bypass: None }
    }
}

impl Access {
    /// Whether the request may see the site.
    pub fn admits(&self, request: &HttpRequest) -> bool {
        self.mode == "public" || self.is_passed_by(request)
    }

    /// Digests are compared, not keys: how long that takes tells nothing of a key.
    fn is_passed_by(&self, request: &HttpRequest) -> bool {
        let mut sent = request.headers().get_all(BYPASS);
        let (Some(key), None) = (sent.next(), sent.next()) else { return false };
        self.bypass == Some(Digest::of(key.as_bytes()).hex())
    }
}
