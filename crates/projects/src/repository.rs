//! What projects ask of storage.

use kernel::{DeploymentId, Digest, OrgId, Paging, ProjectId, Time};
use store::Result;

use crate::model::{Author, Deployment, Git, Project, ProjectDetail, ProjectName};
use crate::ports::Live;

/// A project to write, with the hostname that comes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRecord {
    pub id: ProjectId,
    pub org: OrgId,
    pub name: ProjectName,
    pub hostname: String,
    pub created_at: Time,
}

/// A deployment to write.
#[derive(Debug, Clone, PartialEq)]
pub struct DeploymentRecord {
    pub id: DeploymentId,
    pub project: ProjectId,
    pub version: i32,
    pub digest: Digest,
    pub size_bytes: i64,
    /// `svc.json`, unknown keys included.
    pub manifest: serde_json::Value,
    pub has_worker: bool,
    pub asset_count: i32,
    pub git: Git,
    pub created_by: Author,
    pub created_at: Time,
}

/// The verbs of this context on a [`store::Connection`].
pub trait ProjectRepository {
    /// Projects of an organization; meaningful under the organization's lock alone.
    async fn project_count(&mut self, org: OrgId) -> Result<i64>;

    /// Writes a new project; false when the organization has one of this name.
    async fn project_insert(&mut self, project: &ProjectRecord) -> Result<bool>;

    /// The projects of an organization, by id; `slug` is the organization's.
    async fn project_list(
        &mut self,
        org: OrgId,
        slug: &str,
        only: Option<&[ProjectId]>,
        paging: &Paging<ProjectId>,
    ) -> Result<Vec<Project>>;

    /// The project of this name in an organization.
    async fn project_find(&mut self, org: OrgId, name: &str) -> Result<Option<ProjectId>>;

    /// One project of an organization with everything that is shown of it, in one statement.
    async fn project_detail(&mut self, org: OrgId, project: ProjectId, slug: &str) -> Result<Option<ProjectDetail>>;

    /// Hands out the next version and holds the project's row until the transaction ends; none when it is gone.
    async fn project_next_version(&mut self, org: OrgId, project: ProjectId) -> Result<Option<i32>>;

    /// The live version, holding the project's row until the transaction ends; none when the project is gone.
    async fn project_lock(&mut self, org: OrgId, project: ProjectId) -> Result<Option<Option<i32>>>;

    /// Points the project at one of its versions.
    async fn project_set_live(&mut self, project: ProjectId, version: i32) -> Result<()>;

    /// What is live of a project, for its node; none before the first deployment.
    async fn project_live(&mut self, project: ProjectId) -> Result<Option<Live>>;

    /// Writes a project's default hostname; false when the name is in use.
    async fn hostname_insert_default(&mut self, project: &ProjectRecord) -> Result<bool>;

    /// Writes a deployment.
    async fn deployment_insert(&mut self, deployment: &DeploymentRecord) -> Result<()>;

    /// The deployments of a project, newest first.
    async fn deployment_list(&mut self, project: ProjectId, paging: &Paging<i32>) -> Result<Vec<Deployment>>;

    /// One deployment by its version.
    async fn deployment_find(&mut self, project: ProjectId, version: i32) -> Result<Option<Deployment>>;
}
