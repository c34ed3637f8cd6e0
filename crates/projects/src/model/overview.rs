//! The overview of a project (contract sections 5 and 9).

use kernel::Time;
use serde::Serialize;

use super::Deployment;

kernel::words! {
    /// The trigger of a generation.
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

/// The part of a project's overview that this context owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// The live deployment; none before the first one.
    pub live: Option<Deployment>,
    /// The last five deployments.
    pub deployments: Vec<Deployment>,
    /// The most recent backup of the database, if the project has a database.
    pub last_backup: Option<Generation>,
}
