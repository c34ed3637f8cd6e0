//! The part `site`: a project's hostnames, its bundle and its access policy.

use serde::{Deserialize, Serialize};
use sha256::Digest;

use crate::desired::DesiredPart;

/// The site of a project, which a node serves. The context `projects` owns this part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// The user or organization whose projects have one share of the node's memory, connections and permits.
    pub owner: String,
    /// The project's hostnames, lowercase, without a port.
    pub hostnames: Vec<String>,
    /// The bundle to serve.
    pub bundle: Digest,
    /// The bundle's size as uploaded, in bytes.
    pub size_bytes: i64,
    /// The deployment's version.
    pub version: i32,
    pub access: SiteAccess,
    /// The hostnames with `Strict-Transport-Security`.
    #[serde(default)]
    pub hsts: Vec<SiteHsts>,
}

impl DesiredPart for Site {
    const NAME: &'static str = "site";
}

/// The access policy of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SiteAccess {
    pub mode: AccessMode,
    /// The password's hash, as a PHC string (Argon2id).
    #[cfg_attr(feature = "openapi", schema(required))]
    pub password: Option<String>,
    /// The SHA-256, in hex, of the key that bypasses the policy.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub bypass: Option<String>,
    /// Increases with every change, which invalidates the access cookies of earlier versions.
    pub version: i32,
}

/// `Strict-Transport-Security` of a hostname (RFC 6797).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SiteHsts {
    /// One of the site's hostnames.
    pub hostname: String,
    /// The value of `max-age`, in seconds.
    pub max_age: i32,
    pub include_sub_domains: bool,
    pub preload: bool,
}

/// The visitors who may see a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessMode {
    /// All visitors.
    Public,
    /// Members of the organization, through the dashboard.
    Org,
    /// Visitors who know the password.
    Password,
    /// A mode that this release does not know. Only the bypass key grants access.
    #[serde(other)]
    Unknown,
}

impl AccessMode {
    /// Returns the mode on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Org => "org",
            Self::Password => "password",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(feature = "openapi")]
mod schema {
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
    use utoipa::{PartialSchema, ToSchema};

    use super::AccessMode;

    /// Omits `Unknown`, which the control plane never writes.
    impl PartialSchema for AccessMode {
        fn schema() -> RefOr<Schema> {
            let modes = [AccessMode::Public, AccessMode::Org, AccessMode::Password].map(AccessMode::as_str);
            ObjectBuilder::new().schema_type(Type::String).enum_values(Some(modes)).into()
        }
    }

    impl ToSchema for AccessMode {}
}
