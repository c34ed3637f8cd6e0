//! Responses that combine several contexts: a project, its grants and its notifications.

use databases::Generation;
use kernel::ResourceSet;
use orgs::Notification;
use projects::{Access, Deployment, Hostname, Overview, Placement, Project};
use serde::Serialize;
use utoipa::ToSchema;

/// A project with its live deployment, hostnames and placement.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProjectDetail {
    #[serde(flatten)]
    project: Project,
    /// The live deployment. Null before the first deployment.
    #[schema(required)]
    live: Option<Deployment>,
    hostnames: Vec<Hostname>,
    access: Access,
    /// The optional resources that are granted.
    resources: ResourceSet,
    /// The placement. Null before the first deployment, unless the project has a database.
    #[schema(required)]
    placement: Option<Placement>,
}

/// The overview of a project, with its notifications.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "lastBackup": null }))]
pub(super) struct ProjectOverview {
    /// The live deployment. Null before the first deployment.
    #[schema(required)]
    live: Option<Deployment>,
    /// The five latest deployments.
    deployments: Vec<Deployment>,
    /// The latest backup of the database. Null if the project has no database or no backup.
    #[schema(required)]
    last_backup: Option<Generation>,
    resources: ResourceStates,
    /// The five latest notifications.
    notifications: Vec<Notification>,
}

/// Whether an optional resource is declared, and whether it is granted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({ "declared": false, "granted": false }))]
struct ResourceState {
    /// Whether the manifest of the live deployment declares the resource.
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
        // A secret or a grant already creates the placement, but the node serves nothing yet.
        let placement = placement.filter(|_| live.is_some() || granted.database);
        Self { project, live, hostnames, access, resources: granted, placement }
    }
}

impl ProjectOverview {
    pub(super) fn new(
        overview: Overview,
        last_backup: Option<Generation>,
        granted: ResourceSet,
        notifications: Vec<Notification>,
    ) -> Self {
        let Overview { live, deployments } = overview;
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
