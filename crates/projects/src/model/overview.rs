//! What a project's first page shows (contract sections 5 and 9).

use kernel::Time;
use serde::Serialize;

use super::Deployment;

kernel::words! {
    /// Why a generation was made.
    pub enum GenerationKind {
        Scheduled = "scheduled",
        PreRestore = "pre_restore",
        Final = "final",
    }
}

/// A backup of a project's database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    pub epoch: i64,
    pub seq: i64,
    pub kind: GenerationKind,
    pub size_bytes: i64,
    pub sha256: String,
    pub offsite_key: String,
    pub created_at: Time,
}

/// A project's first page, as far as this context knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// None before the first deployment.
    pub live: Option<Deployment>,
    /// The last five.
    pub deployments: Vec<Deployment>,
    /// The database's most recent one; none without a database.
    pub last_backup: Option<Generation>,
}
