//! What projects ask of storage.

use kernel::{AccessMode, DeploymentId, Digest, OrgId, Paging, ProjectId, Role, Time, TokenHash};
use store::Result;

use crate::model::{
    Author, Check, Deployment, DeploymentStatus, Git, Hostname, HostnameState, Overview, Project, ProjectDetail,
    ProjectName, Proof,
};
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
    /// Projects of an organization that are not deleted; meaningful under the organization's lock alone.
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

    /// A project's first page, in one statement.
    async fn project_overview(&mut self, org: OrgId, project: ProjectId) -> Result<Option<Overview>>;

    /// Gives a project another name, and its default hostname with it.
    ///
    /// # Errors
    /// Violations of `projects_org_id_name_live_key` and `hostnames_pkey`, when either is in use.
    async fn project_rename(&mut self, project: ProjectId, name: &ProjectName, hostname: &str) -> Result<()>;

    /// Takes a project out of every path and frees its hostnames; the rows stay.
    async fn project_delete(&mut self, project: ProjectId, at: Time) -> Result<()>;

    /// Removes projects that were deleted before this time, with their deployments: so many at once. Tells how many.
    async fn project_purge(&mut self, deleted_before: Time, most: i64) -> Result<usize>;

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

    /// Notes what was reported of a deployment; that a retired one crashed or failed is no news. One that is served retires
    /// the others, but for the one that is live: that one is on its way.
    async fn deployment_observed(
        &mut self,
        project: ProjectId,
        version: i32,
        status: DeploymentStatus,
        message: Option<&str>,
    ) -> Result<()>;

    /// One deployment by its version.
    async fn deployment_find(&mut self, project: ProjectId, version: i32) -> Result<Option<Deployment>>;
}

/// A claim to write.
#[derive(Debug, Clone, Copy)]
pub struct NewClaim<'a> {
    pub name: &'a str,
    pub project: ProjectId,
    /// What a TXT record has to say.
    pub token: &'a str,
    pub at: Time,
    pub lapses_at: Time,
}

/// A custom name that a project claims or has, with what its proof is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub project: ProjectId,
    pub project_name: String,
    pub org: OrgId,
    pub state: HostnameState,
    pub token: String,
    pub lapses_at: Option<Time>,
    /// Since when it has been active without a proof.
    pub lost_at: Option<Time>,
    /// It was active for another organization last.
    pub was_another_s: bool,
}

/// A look at a claim that found no proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unproved {
    pub name: String,
    /// Tells the claim from a later one of the same name.
    pub token: String,
    pub error: Option<String>,
    pub checks: Vec<Check>,
    /// When to look again.
    pub check_at: Time,
}

impl Unproved {
    pub(crate) fn new(claim: &Claim, error: Option<String>, checks: Vec<Check>, check_at: Time) -> Self {
        Self { name: claim.name.clone(), token: claim.token.clone(), error, checks, check_at }
    }
}

/// Hostnames on a [`store::Connection`].
pub trait HostnameRepository {
    /// The hostnames of a project, the default one first.
    async fn hostname_list(&mut self, project: ProjectId) -> Result<Vec<Hostname>>;

    /// One of a project's hostnames.
    async fn hostname_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Hostname>>;

    /// Writes a claim; false when the name is in use. A claim that nobody proved in time is in nobody's way.
    async fn hostname_claim(&mut self, claim: &NewClaim<'_>) -> Result<bool>;

    /// Writes what keeps a served name from being reached; none for nothing.
    async fn hostname_note(&mut self, project: ProjectId, name: &str, problem: Option<&str>) -> Result<()>;

    /// Removes a custom hostname.
    async fn hostname_delete(&mut self, project: ProjectId, name: &str) -> Result<()>;

    /// A custom hostname as a claim.
    async fn claim_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Claim>>;

    /// Claims that are due, so many at once, left alone by everybody else until the lease ends.
    async fn claims_due(&mut self, now: Time, lease: Time, most: i64) -> Result<Vec<Claim>>;

    /// Serves a pending name from now on; false when it is pending no longer.
    async fn claim_activate(&mut self, claim: &Claim, proof: Proof, at: Time, check_at: Time) -> Result<bool>;

    /// Notes that an active name still has a proof.
    async fn claim_reproved(&mut self, claim: &Claim, proof: Proof, check_at: Time) -> Result<()>;

    /// Notes what was looked up and seen, and when to look again. Without an error the one there is stays.
    async fn claims_unproved(&mut self, unproved: &[Unproved]) -> Result<()>;

    /// Notes that an active name has lost its proof; false when it had before.
    async fn claim_lost(&mut self, unproved: &Unproved, at: Time) -> Result<bool>;

    /// Makes an active name a claim again; false when it is none.
    async fn claim_detach(&mut self, unproved: &Unproved, lapses_at: Time, check_at: Time) -> Result<bool>;

    /// Ends a pending claim whose time is over; false when it was proved or ended meanwhile.
    async fn claim_lapse(&mut self, claim: &Claim, at: Time) -> Result<bool>;
}

/// A project's policy as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRecord {
    pub mode: AccessMode,
    /// Argon2id, as a PHC string.
    pub password: Option<String>,
    pub bypass: Option<TokenHash>,
    pub changed_at: Time,
}

/// An active hostname's project, for the access round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door {
    pub project: ProjectId,
    pub org: OrgId,
    pub mode: AccessMode,
}

impl Door {
    /// The least role that the round trip lets in: where anybody else may see the project too, every role
    /// (contract section 5).
    #[must_use]
    pub fn least(&self) -> Role {
        if self.mode == AccessMode::Org { Role::Member } else { Role::Viewer }
    }
}

/// Access policies on a [`store::Connection`].
pub trait AccessRepository {
    /// A project's policy.
    async fn access_find(&mut self, project: ProjectId) -> Result<Option<AccessRecord>>;

    /// Sets mode and password.
    async fn access_set(
        &mut self,
        project: ProjectId,
        mode: AccessMode,
        password: Option<&str>,
        at: Time,
    ) -> Result<()>;

    /// Sets or removes the bypass key.
    async fn access_set_bypass(&mut self, project: ProjectId, key: Option<TokenHash>, at: Time) -> Result<()>;

    /// What is behind an active hostname.
    async fn access_door(&mut self, hostname: &str) -> Result<Option<Door>>;

    /// Uses up a code of the round trip; false when it was used before. Forgets codes that have expired.
    async fn access_use_code(&mut self, code: uuid::Uuid, expires_at: Time, now: Time) -> Result<bool>;
}
