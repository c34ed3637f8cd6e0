//! Hostnames and their ownership verification (contract section 5).

use kernel::Time;
use kernel::ownership::{VerifyRecord, VerifyRecordType};
use serde::{Deserialize, Serialize};
use validator::Validate;

use super::hsts::Hsts;

kernel::words! {
    /// The kind of a hostname.
    pub enum HostnameKind {
        /// Created with the project.
        Default = "default",
        /// Added by a user.
        Custom = "custom",
    } example Custom
}

kernel::words! {
    /// The state of a hostname.
    pub enum HostnameState {
        /// Reserved until its ownership is verified.
        PendingDns = "pending_dns",
        /// Served.
        Active = "active",
    } example Active
}

kernel::words! {
    /// A proof of ownership of a hostname.
    pub enum Proof {
        /// The name is in a hosted zone of the organization.
        Zone = "zone",
        /// A TXT record.
        Txt = "txt",
        /// A CNAME to the fallback origin.
        Cname = "cname",
    }
}

/// A hostname of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "www.example.org", "verify": [], "checks": [] })))]
pub struct Hostname {
    /// The name in lowercase punycode.
    pub name: String,
    pub kind: HostnameKind,
    pub state: HostnameState,
    /// The records that prove ownership; empty after verification.
    pub verify: Vec<VerifyRecord>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub verification_token: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_error: Option<String>,
    /// The results of the last verification; empty after it succeeds.
    pub checks: Vec<Check>,
    pub created_at: Time,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub verified_at: Option<Time>,
    /// The TLS certificate.
    pub tls: HostnameTls,
    /// `Strict-Transport-Security`. Null if the platform adds no such header.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub hsts: Option<Hsts>,
    /// Whether the hostname was last active for another organization, so that only a TXT record proves ownership. Not
    /// part of the API.
    #[serde(skip)]
    pub held_by_another_org: bool,
}

kernel::words! {
    /// The state of the TLS certificate of a hostname.
    pub enum TlsState {
        /// The platform issues no certificate for the hostname: it is not served, or the platform issues none at all.
        Off = "off",
        /// The first certificate is being issued.
        Pending = "pending",
        /// The hostname has a certificate.
        Active = "active",
        /// The hostname has no valid certificate, and the last attempt to issue one failed. It is repeated.
        Failed = "failed",
    } example Active
}

/// The TLS certificate of a hostname.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostnameTls {
    pub state: TlsState,
    /// The expiry of the current certificate.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_at: Option<Time>,
    /// The reason why the last attempt to issue or renew the certificate failed.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_error: Option<String>,
}

impl HostnameTls {
    /// No certificate.
    pub const OFF: Self = Self { state: TlsState::Off, expires_at: None, last_error: None };
}

/// The result of one ownership check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    pub proof: Proof,
    pub expected: String,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub observed: Option<Vec<String>>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub error: Option<String>,
    pub at: Time,
}

/// A hostname to claim.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewHostname {
    /// The hostname. It is stored as lowercase punycode.
    #[validate(length(min = 1, max = 1024))]
    #[cfg_attr(feature = "openapi", schema(format = "custom-hostname", min_length = 1, max_length = 1024))]
    #[cfg_attr(feature = "openapi", schema(example = "www.example.org"))]
    pub name: String,
}

impl Hostname {
    /// Adds the records that prove ownership, if the hostname is pending.
    #[must_use]
    pub fn with_verify_records(self, fallback_origin: &str) -> Self {
        let Some(token) = self.verification_token.as_ref().filter(|_| self.state == HostnameState::PendingDns) else {
            return self;
        };
        let mut verify = vec![VerifyRecord::txt(&self.name, token)];
        if !self.held_by_another_org {
            let (name, value) = (self.name.clone(), fallback_origin.to_owned());
            verify.push(VerifyRecord { kind: VerifyRecordType::Cname, name, value });
        }
        Self { verify, ..self }
    }
}
