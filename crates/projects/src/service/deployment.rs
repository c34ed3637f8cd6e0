//! Deployments: upload, listing and rollback.

use bytes::Bytes;
use futures_util::Stream;
use kernel::audit::{Actor, Event};
use kernel::{DeploymentId, Page, Paging, ProjectId, Resource, ResourceSet};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Org, Projects, Result};
use crate::bundles::StoredBundle;
use crate::error::ProjectError;
use crate::model::{Author, Deployment, DeploymentStatus, Git, Rollback};
use crate::ports::Push;
use crate::repository::{BundleRepository as _, DeploymentRecord, DeploymentRepository as _, ProjectRepository as _};

/// One day, in seconds.
const DAY: i64 = 24 * 3600;

/// The source of a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub created_by: Author,
    pub git: Git,
    /// The push that is deployed; `None` for an upload.
    pub push: Option<Push>,
}

impl Projects {
    /// Lists the deployments of a project, newest first.
    ///
    /// # Errors
    /// Returns [`ProjectError::Store`].
    pub async fn deployments(&self, project: ProjectId, paging: &Paging<i32>) -> Result<Page<Deployment>> {
        let deployments = self.store.lookup(async |lookups| lookups.deployment_list(project, paging).await).await?;
        Ok(Page::cut(deployments, paging, |deployment| deployment.version))
    }

    /// Stores a bundle and makes it live as the project's next version.
    ///
    /// # Errors
    /// Returns the errors of [`crate::Bundles::receive`], [`ProjectError::BundleBytes`],
    /// [`ProjectError::DeploymentLimit`], [`ProjectError::NotFound`] or [`ProjectError::PushNotPending`].
    pub async fn deploy<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        source: Source,
        body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<Deployment> {
        let Source { created_by, git, push } = source;
        let clock_rng = self.store.clock_rng();
        let id = clock_rng.id::<DeploymentId>();
        let limits = self.limits.for_plan(org.plan).bundle;
        let count = async |bundle: &StoredBundle| self.count_bundle(actor, org, (project, push), bundle).await;
        let received = self.bundles.receive(&id.to_string(), limits, body, count).await?;
        let StoredBundle { digest, size_bytes, contents } = received;
        let mut record = DeploymentRecord {
            id,
            project,
            version: 0,
            digest,
            size_bytes: i64::try_from(size_bytes).unwrap_or(i64::MAX),
            declares: declared(&contents.manifest),
            has_worker: contents.has_worker,
            asset_count: i32::try_from(contents.asset_count).unwrap_or(i32::MAX),
            git,
            created_by,
            created_at: clock_rng.now(),
        };
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                record.version = tx.project_next_version(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                self.require_deployments_left(tx, project, record.version).await?;
                if let Some(push) = push
                    && !self.pushes.complete(tx, push, record.version).await?
                {
                    return Err(ProjectError::PushNotPending);
                }
                tx.deployment_insert(&record).await?;
                self.go_live(tx, project, record.version).await?;
                let found = tx.deployment_find(project, record.version).await?;
                let deployment = found.ok_or(ProjectError::VersionNotFound)?;
                let data = json!({ "version": deployment.version, "digest": digest });
                Ok(Outcome::Changed(deployment, Event::in_org("deployment.create", org.id, project, data)))
            })
            .await
    }

    /// Counts a bundle against the organization's limit before it is stored, so that no stored bundle is uncounted,
    /// even if its deployment fails. A counted bundle that could not be stored is not counted again. A bundle that
    /// cannot be deployed is not counted: the checks of the deployment also precede the count.
    async fn count_bundle(
        &self,
        actor: &Actor,
        org: &Org,
        (project, push): (ProjectId, Option<Push>),
        bundle: &StoredBundle,
    ) -> Result<()> {
        let limit = self.limits.for_plan(org.plan).bundle_bytes;
        let size_bytes = i64::try_from(bundle.size_bytes).unwrap_or(i64::MAX);
        self.store
            .transaction_unaudited_as(actor, async |tx: &mut Connection| {
                let last_version = tx.project_last_version(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                self.require_deployments_left(tx, project, last_version + 1).await?;
                if let Some(push) = push
                    && !self.pushes.is_next(tx, push).await?
                {
                    return Err(ProjectError::PushNotPending);
                }
                let Some(bytes) = tx.bundle_count(org.id, bundle.digest, size_bytes).await? else { return Ok(()) };
                if bytes.unsigned_abs() > limit {
                    return Err(ProjectError::BundleBytes { limit, bytes, plan: org.plan });
                }
                Ok(())
            })
            .await
    }

    /// Checks that the project may have a deployment with this version now. Versions have no gaps, so the version tells
    /// how many deployments are newer than another one. The result is reliable only while the project's row is locked.
    async fn require_deployments_left(&self, tx: &mut Connection, project: ProjectId, version: i32) -> Result<()> {
        let (limit, now) = (self.abuse_limits.deployments_per_project, self.store.clock_rng().now());
        let oldest = match i32::try_from(limit) {
            Ok(0) => Some(now),
            Ok(limit) => tx.deployment_created_at(project, version - limit).await?,
            Err(_) => None,
        };
        let retry_after = oldest.map_or(0, |oldest| oldest.plus_seconds(DAY).seconds_since(now));
        if retry_after <= 0 { Ok(()) } else { Err(ProjectError::DeploymentLimit { limit, retry_after }) }
    }

    /// Returns one deployment.
    ///
    /// # Errors
    /// Returns [`ProjectError::VersionNotFound`].
    pub async fn deployment(&self, project: ProjectId, version: i32) -> Result<Deployment> {
        let found = self.store.lookup(async |lookups| lookups.deployment_find(project, version).await).await?;
        found.ok_or(ProjectError::VersionNotFound)
    }

    /// Makes an earlier version live again, without creating a new deployment. A rollback to the live version is a
    /// no-op.
    ///
    /// # Errors
    /// Returns [`ProjectError::VersionNotFound`] or [`ProjectError::NotFound`].
    pub async fn rollback(&self, actor: &Actor, org: &Org, project: ProjectId, to: Rollback) -> Result<Deployment> {
        let Rollback { version } = to;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let live = tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let target = tx.deployment_find(project, version).await?.ok_or(ProjectError::VersionNotFound)?;
                if target.live {
                    return Ok(Outcome::Unchanged(target));
                }
                self.go_live(tx, project, version).await?;
                // Lock the deployment after the node's row, as in the handling of reports. The opposite order could
                // deadlock.
                tx.deployment_set_status(project, version, DeploymentStatus::Pending, None).await?;
                let deployment = tx.deployment_find(project, version).await?.ok_or(ProjectError::VersionNotFound)?;
                let data = json!({ "from": live, "to": version });
                Ok(Outcome::Changed(deployment, Event::in_org("deployment.rollback", org.id, project, data)))
            })
            .await
    }

    /// Sets the live version and updates the node's desired state. The caller holds the project's row lock.
    async fn go_live(&self, tx: &mut Connection, project: ProjectId, version: i32) -> Result<()> {
        tx.project_set_live(project, version).await?;
        self.update_desired(tx, project).await
    }
}

fn declared(manifest: &bundle::Manifest) -> ResourceSet {
    ResourceSet::from_fn(|resource| match resource {
        Resource::Auth => manifest.auth,
        Resource::Database => manifest.database,
        Resource::Email => manifest.email,
        Resource::Ai => manifest.ai,
        Resource::Storage => manifest.storage,
    })
}
