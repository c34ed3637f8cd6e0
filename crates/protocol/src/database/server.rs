//! The announcement of a node about its Postgres.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use validator::Validate as _;

use super::nullable;

/// The announcement of a node about itself, at its start and at each relist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, validator::Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeInfo {
    /// The node's Postgres; null if it has none.
    #[cfg_attr(feature = "openapi", schema(required), validate(nested))]
    #[serde(deserialize_with = "nullable")]
    pub database: Option<DatabaseServer>,
}

/// The address of a node's Postgres, for the clients of all its databases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, validator::Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DatabaseServer {
    /// A host name or an IP address.
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 1, max_length = 253, example = "db1.svc.example"),
        validate(length(min = 1, max = 253))
    )]
    pub host: String,
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 5432), validate(range(min = 1)))]
    pub port: u16,
    pub sslmode: SslMode,
    /// The interval of scheduled generations, in seconds.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 3600), validate(range(min = 1)))]
    pub backup_interval_seconds: u32,
}

/// The `sslmode` that clients should use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    Disable,
    Require,
    VerifyFull,
}

impl SslMode {
    /// Returns the word in messages, and in the address of a database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Require => "require",
            Self::VerifyFull => "verify-full",
        }
    }
}
