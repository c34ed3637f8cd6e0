//! Hostnames and the proofs that they belong to whoever claims them (contract section 5).

use kernel::Time;
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::words! {
    /// Whether a hostname came with the project.
    pub enum HostnameKind {
        Default = "default",
        Custom = "custom",
    } example Custom
}

kernel::words! {
    /// Whether a hostname is served.
    pub enum HostnameState {
        /// Reserved until its ownership is proved.
        PendingDns = "pending_dns",
        Active = "active",
    } example Active
}

kernel::words! {
    /// How the ownership of a hostname is proved.
    pub enum Proof {
        /// It lies in a zone that the organization hosts here.
        Zone = "zone",
        /// A TXT record.
        Txt = "txt",
        /// A CNAME to the fallback origin.
        Cname = "cname",
    }
}

kernel::words! {
    /// The record types that guide a user to a proof.
    pub enum VerifyRecordType {
        Txt = "TXT",
        Cname = "CNAME",
    }
}

/// A name under which a project is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "www.example.org", "verify": [], "checks": [] })))]
pub struct Hostname {
    /// Lowercase punycode.
    pub name: String,
    pub kind: HostnameKind,
    pub state: HostnameState,
    /// Records that would prove the ownership; empty once it is proved.
    pub verify: Vec<VerifyRecord>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub verification_token: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_error: Option<String>,
    /// What was looked up last, and seen; empty once the ownership is proved.
    pub checks: Vec<Check>,
    pub created_at: Time,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub verified_at: Option<Time>,
}

/// A record to publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerifyRecord {
    #[serde(rename = "type")]
    pub kind: VerifyRecordType,
    pub name: String,
    pub value: String,
}

/// One look for a proof.
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

/// The name to claim.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewHostname {
    /// In any spelling; it is kept as lowercase punycode.
    #[validate(length(min = 1, max = 1024))]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024, example = "www.example.org"))]
    pub name: String,
}

impl Hostname {
    /// With the records that would prove it, for as long as that is open.
    #[must_use]
    pub fn guided(self, fallback_origin: &str) -> Self {
        let Some(token) = self.verification_token.as_ref().filter(|_| self.state == HostnameState::PendingDns) else {
            return self;
        };
        let record = |kind, name: String, value: String| VerifyRecord { kind, name, value };
        let verify = vec![
            record(VerifyRecordType::Txt, format!("_svc-verify.{}", self.name), format!("svc-verify={token}")),
            record(VerifyRecordType::Cname, self.name.clone(), fallback_origin.to_owned()),
        ];
        Self { verify, ..self }
    }
}
