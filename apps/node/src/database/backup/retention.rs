//! Deletes the objects of interrupted dumps, and the objects whose retention is over.

use super::Service;
use super::error::Result;
use crate::database::time::is_plausible;

/// Selects the dumps that are not stored: interrupted ones, and those in progress.
const UNSTORED: &str = "SELECT project, key FROM svc.dumps WHERE NOT stored AND key <> ALL ($1) ORDER BY number";

/// Selects the objects whose retention has been over for an hour. The control plane lists a generation until the end of
/// its retention, and a restore that begins then still finds the object. Omits the newest undamaged generation of an
/// existing database, because the database may have no other backup.
const EXPIRED: &str = "
    SELECT d.project, d.key FROM svc.dumps d
    WHERE d.stored AND d.created_at + d.days * interval '1 day' + interval '1 hour' < now()
        AND (d.keep_until IS NULL OR d.keep_until < now()) AND d.key <> ALL ($1)
        AND (d.kind = 'export' OR d.damaged OR d.key IS DISTINCT FROM (
            SELECT newest.key FROM svc.dumps newest JOIN svc.databases existing USING (project)
            WHERE newest.project = d.project AND newest.stored AND NOT newest.damaged AND newest.kind <> 'export'
            ORDER BY newest.created_at DESC LIMIT 1))
    ORDER BY d.created_at LIMIT 1000";

/// Selects all exports except the newest five of each project. Older exports are not needed: a user downloads an export
/// soon after its creation, and can request another one.
const SURPLUS_EXPORTS: &str = "
    SELECT project, key
    FROM (SELECT project, key, row_number() OVER (PARTITION BY project ORDER BY created_at DESC) AS place
        FROM svc.dumps WHERE stored AND kind = 'export') exports
    WHERE place > 5 AND key <> ALL ($1) LIMIT 1000";

impl Service {
    /// Deletes the objects and rows of interrupted dumps, including those of a killed process.
    pub(super) async fn delete_interrupted(&self) -> Result<()> {
        for (project, key) in self.keys(UNSTORED).await? {
            // A dump that ended after the query is not in use any more. It must not be deleted if it was stored.
            if !self.is_needed(&project, &key) && self.abandon(&key).await? {
                self.delete_object(&key, "interrupted").await?;
            }
        }
        Ok(())
    }

    /// Deletes the objects whose retention is over, and the exports that newer ones have replaced.
    pub(super) async fn delete_expired(&self) -> Result<()> {
        let connection = self.connect().await?;
        if !is_plausible(&connection, &self.clock).await? {
            tracing::warn!("the clocks of the node, Postgres and the control plane differ: no backup is deleted");
            return Ok(());
        }
        for (project, days) in self.desired.backup_days() {
            // A change of the plan can change the retention of existing generations.
            let update = "UPDATE svc.dumps SET days = $2 WHERE project = $1 AND kind = 'scheduled' AND days <> $2";
            let days = i32::try_from(days).unwrap_or(i32::MAX);
            connection.execute(update, &[&project, &days]).await?;
        }
        drop(connection);
        self.delete_objects(EXPIRED, "expired").await?;
        self.delete_objects(SURPLUS_EXPORTS, "surplus").await
    }

    /// Deletes the stored objects with the keys that a query returns, and then their rows.
    async fn delete_objects(&self, query: &str, reason: &str) -> Result<()> {
        for (project, key) in self.keys(query).await? {
            if !self.is_needed(&project, &key) {
                self.delete_object(&key, reason).await?;
            }
        }
        Ok(())
    }

    /// Returns the projects and keys that a query selects. Its parameter contains the keys of [`Service::failed`].
    async fn keys(&self, query: &str) -> Result<Vec<(String, String)>> {
        let rows = self.connect().await?.query(query, &[&self.failed.keys()]).await?;
        rows.iter().map(|row| Ok((row.try_get("project")?, row.try_get("key")?))).collect()
    }

    async fn delete_object(&self, key: &str, reason: &str) -> Result<()> {
        if self.delete_archive(key).await {
            self.remove_record(key).await?;
            self.metrics.count_removed(reason);
            tracing::info!(key, reason, "deleted the object of a dump");
        }
        Ok(())
    }

    /// Deletes an archive. Returns false if the store fails. The archive is then skipped for a while.
    pub(super) async fn delete_archive(&self, key: &str) -> bool {
        match self.archives.delete(key).await {
            Ok(()) => true,
            Err(error) => {
                self.failed.record(key, error);
                false
            }
        }
    }

    /// Returns whether an object must not be deleted: the control plane may ask for it, or it is in use.
    pub(super) fn is_needed(&self, project: &str, key: &str) -> bool {
        self.in_use.contains(key) || self.desired.may_need(project, key)
    }
}
