//! The use cases of projects and deployments.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use kernel::audit::{Actor, Event};
use kernel::{Digest, Limits, OrgId, Page, Paging, Plan, ProjectId};
use serde_json::json;
use store::{Connection, Outcome, Store};

use crate::bundles::{Bundles, Received};
use crate::error::ProjectError;
use crate::model::{Author, Deployment, Git, NewProject, Project, ProjectDetail, ProjectName, Rollback};
use crate::ports::{Organizations, Placements};
use crate::repository::{DeploymentRecord, ProjectRecord, ProjectRepository as _};

/// The longest label of a host name (RFC 1035 section 2.3.4).
const LABEL: usize = 63;

/// The organization that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    pub id: OrgId,
    pub slug: String,
    pub plan: Plan,
}

/// Projects and their deployments. Cheap to clone.
#[derive(Clone)]
pub struct Projects {
    store: Store,
    bundles: Bundles,
    limits: Limits,
    platform_domain: Arc<str>,
    organizations: Arc<dyn Organizations>,
    placements: Arc<dyn Placements>,
}

type Result<T> = std::result::Result<T, ProjectError>;

impl Projects {
    /// The service on this database and this store of bundles; default hostnames lie under `platform_domain`.
    #[must_use]
    pub fn new(
        store: Store,
        bundles: Bundles,
        limits: Limits,
        platform_domain: &str,
        organizations: Arc<dyn Organizations>,
        placements: Arc<dyn Placements>,
    ) -> Self {
        Self { store, bundles, limits, platform_domain: platform_domain.into(), organizations, placements }
    }

    /// Creates a project and the hostname that comes with it, within the plan's limit.
    ///
    /// # Errors
    /// [`ProjectError::Limit`], [`ProjectError::NameTaken`], [`ProjectError::HostnameTaken`].
    pub async fn create(&self, actor: &Actor, org: &Org, new: NewProject) -> Result<Project> {
        let world = self.store.world();
        let NewProject { name } = new;
        let hostname = format!("{}.{}", default_label(&name, &org.slug), self.platform_domain);
        let project = ProjectRecord { id: world.id(), org: org.id, name, hostname, created_at: world.now() };
        let created = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                let plan = self.organizations.lock(tx, org.id).await?.ok_or(ProjectError::NotFound)?;
                let (limit, count) = (self.limits.of(plan).projects, tx.project_count(org.id).await?);
                if count >= i64::from(limit) {
                    return Err(ProjectError::Limit { limit, count, plan });
                }
                if !tx.project_insert(&project).await? {
                    return Err(ProjectError::NameTaken);
                }
                if !tx.hostname_insert_default(&project).await? {
                    return Err(ProjectError::HostnameTaken(project.hostname));
                }
                let data = json!({ "name": project.name, "hostname": project.hostname });
                let event = event("project.create", org.id, project.id, data);
                let ProjectRecord { id, name, hostname, created_at, .. } = project;
                Ok(Outcome::Changed(Project { id, name, org: org.slug.clone(), hostname, created_at }, event))
            })
            .await;
        if let Err(ProjectError::Limit { limit, .. }) = created {
            // Beside the request, which made nothing: whether this succeeds changes neither its answer nor its key.
            let actor = Actor { once: None, ..actor.clone() };
            if let Err(error) = self.organizations.limit_reached(&actor, org.id, limit).await {
                tracing::warn!(%error, "the organization was not told of its limit");
            }
        }
        created
    }

    /// The projects of an organization, oldest first; of them `only` these, for a credential that reaches no others.
    ///
    /// # Errors
    /// [`ProjectError::Store`].
    pub async fn list(
        &self,
        org: &Org,
        only: Option<&[ProjectId]>,
        paging: &Paging<ProjectId>,
    ) -> Result<Page<Project>> {
        let projects = self.store.connection().await?.project_list(org.id, &org.slug, only, paging).await?;
        Ok(Page::cut(projects, paging, |project| project.id))
    }

    /// One project.
    ///
    /// # Errors
    /// [`ProjectError::NotFound`].
    pub async fn detail(&self, org: &Org, project: ProjectId) -> Result<ProjectDetail> {
        let detail = self.store.connection().await?.project_detail(org.id, project, &org.slug).await?;
        detail.ok_or(ProjectError::NotFound)
    }

    /// The deployments of a project, newest first.
    ///
    /// # Errors
    /// [`ProjectError::Store`].
    pub async fn deployments(&self, project: ProjectId, paging: &Paging<i32>) -> Result<Page<Deployment>> {
        let deployments = self.store.connection().await?.deployment_list(project, paging).await?;
        Ok(Page::cut(deployments, paging, |deployment| deployment.version))
    }

    /// Takes a bundle in and makes it live as the project's next version.
    ///
    /// # Errors
    /// What [`Bundles::receive`] refuses, [`ProjectError::NotFound`].
    pub async fn deploy<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        (created_by, git): (Author, Git),
        body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<Deployment> {
        let world = self.store.world();
        let id = world.id::<kernel::DeploymentId>();
        let received = self.bundles.receive(&id.to_string(), self.limits.of(org.plan).bundle, body).await?;
        let Received { digest, size_bytes, contents } = received;
        let manifest = serde_json::to_value(&contents.manifest).map_err(store::Error::inconsistent)?;
        let mut record = DeploymentRecord {
            id,
            project,
            version: 0,
            digest,
            size_bytes: i64::try_from(size_bytes).unwrap_or(i64::MAX),
            manifest,
            has_worker: contents.has_worker,
            asset_count: i32::try_from(contents.asset_count).unwrap_or(i32::MAX),
            git,
            created_by,
            created_at: world.now(),
        };
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                record.version = tx.project_next_version(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                tx.deployment_insert(&record).await?;
                let deployment = self.go_live(tx, project, record.version).await?;
                let data = json!({ "version": deployment.version, "digest": digest });
                Ok(Outcome::Changed(deployment, event("deployment.create", org.id, project, data)))
            })
            .await
    }

    /// Makes an older version live again. No deployment is created; the version that is live already stays so.
    ///
    /// # Errors
    /// [`ProjectError::VersionNotFound`], [`ProjectError::NotFound`].
    pub async fn rollback(&self, actor: &Actor, org: &Org, project: ProjectId, to: Rollback) -> Result<Deployment> {
        let Rollback { version } = to;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let live = tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let target = tx.deployment_find(project, version).await?.ok_or(ProjectError::VersionNotFound)?;
                if target.live {
                    return Ok(Outcome::Unchanged(target));
                }
                let deployment = self.go_live(tx, project, version).await?;
                let data = json!({ "from": live, "to": version });
                Ok(Outcome::Changed(deployment, event("deployment.rollback", org.id, project, data)))
            })
            .await
    }

    /// The bytes of a bundle, for the node that serves it.
    ///
    /// # Errors
    /// [`ProjectError::BundleNotFound`], [`ProjectError::BundleStore`].
    pub async fn bundle(
        &self,
        digest: Digest,
    ) -> Result<(u64, impl Stream<Item = object_store::Result<Bytes>> + 'static)> {
        self.bundles.open(digest).await
    }

    /// Moves the live pointer, under the project's row lock, and tells the project's node.
    async fn go_live(&self, tx: &mut Connection, project: ProjectId, version: i32) -> Result<Deployment> {
        tx.project_set_live(project, version).await?;
        if let Some(live) = tx.project_live(project).await? {
            self.placements.converge(tx, project, live).await?;
        }
        tx.deployment_find(project, version).await?.ok_or(ProjectError::VersionNotFound)
    }
}

/// `<project>-<org>`, or as much of it as fits a label beside a digest of the whole.
fn default_label(project: &ProjectName, org: &str) -> String {
    let whole = format!("{project}-{org}");
    if whole.len() <= LABEL {
        return whole;
    }
    let digest: String = Digest::of(whole.as_bytes()).hex().chars().take(8).collect();
    let kept: String = whole.chars().take(LABEL - digest.len() - 1).collect();
    format!("{}-{digest}", kept.trim_end_matches('-'))
}

fn event(name: &'static str, org: OrgId, project: ProjectId, data: serde_json::Value) -> Event {
    Event { name, org: Some(org), target: project.to_string(), data }
}

#[cfg(test)]
mod tests {
    use super::default_label;

    #[test]
    fn a_default_label_is_a_label_and_tells_long_names_apart() {
        let project = |name: &str| name.parse().expect("a name");
        assert_eq!(default_label(&project("site"), "ada"), "site-ada");
        let (name, org) = ("p".repeat(40), "o".repeat(40));
        let label = default_label(&project(&name), &org);
        assert_eq!(label.len(), 63);
        assert_ne!(label, default_label(&project(&name), &format!("{}x", &org[..39])));
    }
}
