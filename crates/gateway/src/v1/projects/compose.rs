//! Responses that several contexts contribute to: what projects know of a project, its grants, its notifications.

use kernel::ResourceSet;
use orgs::Notification;
use projects::{Access, Deployment, Generation, Hostname, Overview, Placement, Project};
use serde::Serialize;
use utoipa::ToSchema;

/// One project, with what it serves and where.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProjectDetail {
    #[serde(flatten)]
    project: Project,
    /// Null before the first deployment.
    #[schema(required)]
    live: Option<Deployment>,
    hostnames: Vec<Hostname>,
    access: Access,
    /// Which of the optional resources are granted.
    resources: ResourceSet,
    /// Null before the first deployment.
    #[schema(required)]
    placement: Option<Placement>,
}

/// A project's first page, with what the organization was told about it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "lastBackup": null }))]
pub(super) struct ProjectOverview {
    /// Null before the first deployment.
    #[schema(required)]
    live: Option<Deployment>,
    /// The last five.
    deployments: Vec<Deployment>,
    /// The database's most recent one; null without a database.
    #[schema(required)]
    last_backup: Option<Generation>,
    resources: ResourceStates,
    /// The last five.
    notifications: Vec<Notification>,
}

/// Whether an optional resource is asked for, and whether it is there.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({ "declared": false, "granted": false }))]
struct ResourceState {
    /// By the manifest of the live deployment.
    declared: bool,
    granted: bool,
}

/// The state of each optional resource.
#[derive(Debug, Serialize, ToSchema)]
struct ResourceStates {
    auth: ResourceState,
    database: ResourceState,
    email: ResourceState,
    ai: ResourceState,
    storage: ResourceState,
}

impl ProjectDetail {
    pub(super) fn new(detail: projects::ProjectDetail, granted: ResourceSet) -> Self {
        let projects::ProjectDetail { project, live, hostnames, access, placement } = detail;
        Self { project, live, hostnames, access, resources: granted, placement }
    }
}

impl ProjectOverview {
    pub(super) fn new(overview: Overview, granted: ResourceSet, notifications: Vec<Notification>) -> Self {
        let Overview { live, deployments, last_backup } = overview;
        let declared = live.as_ref().map(|live| live.declares).unwrap_or_default();
        Self { live, deployments, last_backup, resources: ResourceStates::new(declared, granted), notifications }
    }
}

impl ResourceStates {
    const fn new(declared: ResourceSet, granted: ResourceSet) -> Self {
        Self {
            auth: ResourceState { declared: declared.auth, granted: granted.auth },
            database: ResourceState { declared: declared.database, granted: granted.database },
            email: ResourceState { declared: declared.email, granted: granted.email },
            ai: ResourceState { declared: declared.ai, granted: granted.ai },
            storage: ResourceState { declared: declared.storage, granted: granted.storage },
        }
    }
}
