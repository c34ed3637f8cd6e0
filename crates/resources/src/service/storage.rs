//! Object storage. The node holds the objects and reports their size.

use kernel::audit::Actor;
use kernel::{NamedProject, Plan, ProjectId, Resource, StorageId};
use store::Connection;

use super::grant::GrantKind;
use super::{Resources, Result, Target};
use crate::model::StorageStatus;
use crate::ports::{Notice, ResourcePart};
use crate::repository::{PurgedStorage, StorageRecord, StorageRepository as _};

const STORAGE: GrantKind = GrantKind {
    resource: Resource::Storage,
    part: ResourcePart::Storage,
    granted: "storage.grant",
    revoked: "storage.revoke",
};

impl Resources {
    /// Returns the storage of a project, with its usage as of the last report of the node.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`](crate::ResourceError::Store).
    pub async fn storage(&self, target: Target) -> Result<StorageStatus> {
        let found = self.store.connection().await?.storage_find(target.project).await?;
        let enabled = found.as_ref().is_some_and(|found| found.is_granted);
        Ok(self.storage_status(target.plan, found.map(|found| found.record), enabled))
    }

    /// Grants storage to a project. The first grant creates the prefix, which never changes.
    ///
    /// # Errors
    /// Returns [`ResourceError::ProjectNotFound`](crate::ResourceError::ProjectNotFound).
    pub async fn storage_grant(&self, actor: &Actor, target: Target) -> Result<StorageStatus> {
        let prefix = self.store.clock_rng().id();
        let create = async |tx: &mut Connection| Ok(tx.storage_create(target.project, prefix).await?);
        let record = self.grant(actor, target, &STORAGE, create).await?;
        Ok(self.storage_status(target.plan, Some(record), true))
    }

    /// Revokes the storage of a project. The objects stay.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`](crate::ResourceError::Store).
    pub async fn storage_revoke(&self, actor: &Actor, target: Target) -> Result<()> {
        self.revoke(actor, target, &STORAGE, async |_| Ok(())).await
    }

    /// Stores the report of a node in the transaction that accepts it. Notifies the organization when the project
    /// reaches its quota, which is when a report with `quota_exceeded` follows one without.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn storage_report(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        used_bytes: u64,
        quota_exceeded: bool,
    ) -> store::Result<()> {
        let used_bytes = i64::try_from(used_bytes).unwrap_or(i64::MAX);
        let now = self.store.clock_rng().now();
        let was_exceeded = tx.storage_report(project, used_bytes, quota_exceeded, now).await?;
        if was_exceeded != Some(false) || !quota_exceeded {
            return Ok(());
        }
        let Some(owner) = tx.project_plan(project).await? else { return Ok(()) };
        let limit_bytes = self.limits.for_plan(owner.plan).storage_bytes;
        let project = NamedProject { id: project, name: owner.name };
        let notice = Notice::StorageLimit { project, limit_bytes };
        self.ports.organizations.raise(tx, owner.org, notice).await
    }

    /// Begins to delete the objects of purged projects, in the transaction that purges them. The row of the storage is
    /// kept until the node reports the deletion. So the node learns of the deletion even if it was offline for a long
    /// time.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn storage_purge(&self, tx: &mut Connection, projects: &[ProjectId]) -> store::Result<()> {
        for PurgedStorage { project, prefix } in tx.storage_mark_purged(projects, self.store.clock_rng().now()).await? {
            self.ports.parts.publish_deletion(tx, project, prefix).await?;
        }
        Ok(())
    }

    /// Stores the report that the objects of a purged project were deleted, in the transaction that accepts it. Ignores
    /// a report about another project or prefix, and a repeated report.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn storage_deleted(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        prefix: StorageId,
    ) -> store::Result<()> {
        if tx.storage_delete_purged(project, prefix).await? {
            self.ports.parts.end(tx, project).await?;
        }
        Ok(())
    }

    fn storage_status(&self, plan: Plan, record: Option<StorageRecord>, enabled: bool) -> StorageStatus {
        let quota_bytes = self.limits.for_plan(plan).storage_bytes;
        let (prefix, used_bytes, reported_at) = record.map_or((None, 0, None), |record| {
            let StorageRecord { prefix, used_bytes, reported_at } = record;
            (Some(prefix), used_bytes, reported_at)
        });
        StorageStatus { enabled, prefix, quota_bytes, used_bytes, reported_at }
    }
}
