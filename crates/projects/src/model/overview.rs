//! What a project's first page shows (contract sections 5 and 9).

use kernel::Time;
use serde::Serialize;

use super::{Deployment, Resources};

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

/// Whether an optional resource is asked for, and whether it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourceState {
    /// By the manifest of the live deployment.
    pub declared: bool,
    pub granted: bool,
}

/// The state of each optional resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourceStates {
    pub auth: ResourceState,
    pub database: ResourceState,
    pub email: ResourceState,
    pub ai: ResourceState,
    pub storage: ResourceState,
}

/// A project's first page, as far as this context knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Null before the first deployment.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub live: Option<Deployment>,
    /// The last five.
    pub deployments: Vec<Deployment>,
    /// The database's most recent one; null without a database.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_backup: Option<Generation>,
    pub resources: ResourceStates,
}

impl ResourceStates {
    pub(crate) fn new(declared: Resources, granted: Resources) -> Self {
        let state = |declared, granted| ResourceState { declared, granted };
        Self {
            auth: state(declared.auth, granted.auth),
            database: state(declared.database, granted.database),
            email: state(declared.email, granted.email),
            ai: state(declared.ai, granted.ai),
            storage: state(declared.storage, granted.storage),
        }
    }
}
