//! The use cases of deployments: made, listed, and gone back to.

use bytes::Bytes;
use futures_util::Stream;
use kernel::audit::{Actor, Event};
use kernel::{DeploymentId, Page, Paging, ProjectId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Org, Projects, Result};
use crate::bundles::Received;
use crate::error::ProjectError;
use crate::model::{Author, Deployment, DeploymentStatus, Git, Rollback};
use crate::repository::{DeploymentRecord, DeploymentRepository as _, ProjectRepository as _};

impl Projects {
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
    /// What [`crate::Bundles::receive`] refuses, [`ProjectError::NotFound`].
    pub async fn deploy<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        (created_by, git): (Author, Git),
        body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<Deployment> {
        let world = self.store.world();
        let id = world.id::<DeploymentId>();
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
                self.go_live(tx, project, record.version).await?;
                let found = tx.deployment_find(project, record.version).await?;
                let deployment = found.ok_or(ProjectError::VersionNotFound)?;
                let data = json!({ "version": deployment.version, "digest": digest });
                Ok(Outcome::Changed(deployment, Event::in_org("deployment.create", org.id, project, data)))
            })
            .await
    }

    /// One deployment.
    ///
    /// # Errors
    /// [`ProjectError::VersionNotFound`].
    pub async fn deployment(&self, project: ProjectId, version: i32) -> Result<Deployment> {
        let found = self.store.connection().await?.deployment_find(project, version).await?;
        found.ok_or(ProjectError::VersionNotFound)
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
                self.go_live(tx, project, version).await?;
                // After the node's row, like those who note what it reports.
                tx.deployment_observed(project, version, DeploymentStatus::Pending, None).await?;
                let deployment = tx.deployment_find(project, version).await?.ok_or(ProjectError::VersionNotFound)?;
                let data = json!({ "from": live, "to": version });
                Ok(Outcome::Changed(deployment, Event::in_org("deployment.rollback", org.id, project, data)))
            })
            .await
    }

    /// Moves the live pointer, under the project's row lock, and tells the project's node.
    async fn go_live(&self, tx: &mut Connection, project: ProjectId, version: i32) -> Result<()> {
        tx.project_set_live(project, version).await?;
        self.serve(tx, project).await
    }
}
