//! The comparison of the records with the objects in the store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use daemon::error_chain;

use super::Service;
use super::archives::ListedArchive;
use super::error::{BackupError, Result};
use crate::clock;
use crate::database::time::is_plausible;

/// The age at which an object without a record is deleted, in days. Every dump expires earlier. The exception is a
/// project whose scheduled generations have a longer retention: its objects are then kept for a day longer than that.
const ORPHAN_DAYS: u32 = 31;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Service {
    /// Finds recorded objects that are missing or have another size. Deletes old objects without a record, which remain
    /// if a node loses its own database, or is revoked. Also deletes all objects of purged projects that have no record.
    /// Keeps the objects of other projects without a desired database, whose retention is not known here. If the store
    /// fails to list a project, continues with the others. Returns whether all projects were listed.
    pub(super) async fn compare_store(&self) -> Result<bool> {
        let mut projects: BTreeMap<String, Option<u32>> = BTreeMap::new();
        for row in self.connect().await?.query("SELECT DISTINCT project FROM svc.dumps", &[]).await? {
            projects.insert(row.try_get(0)?, None);
        }
        projects.extend(self.desired.deleted().into_iter().map(|project| (project, None)));
        let desired = self.desired.backup_days().into_iter();
        projects.extend(desired.map(|(project, days)| (project, Some(days.saturating_add(1).max(ORPHAN_DAYS)))));
        let mut is_complete = true;
        for (project, orphan_days) in projects {
            match self.compare_project(&project, orphan_days).await {
                Err(error @ (BackupError::Store(_) | BackupError::Io(_))) => {
                    is_complete = false;
                    tracing::warn!(project, error = error_chain(error), "failed to list the backups of a project");
                }
                compared => compared?,
            }
        }
        Ok(is_complete)
    }

    async fn compare_project(&self, project: &str, orphan_days: Option<u32>) -> Result<()> {
        // The records are read before the listing. The listing then contains all their objects, because only this task
        // deletes objects.
        let dumps = self.dumps("stored AND NOT damaged AND project = $1", &[&project]).await?;
        let listed = self.archives.list(project).await?;
        let listed: HashMap<&str, &ListedArchive> = listed.iter().map(|it| (it.key.as_str(), it)).collect();
        for dump in &dumps {
            let key = &dump.object.key;
            let error = match listed.get(key.as_str()) {
                Some(found) if found.size == dump.object.size_bytes => continue,
                Some(_) => BackupError::Corrupt(key.clone()),
                None => BackupError::Missing(key.clone()),
            };
            self.record_damage(dump, &error).await?;
        }
        // The keys are read after the listing. A dump is recorded before its object is written, so the keys contain
        // every listed object that belongs to a dump.
        let keys = self.connect().await?.query("SELECT key FROM svc.dumps WHERE project = $1", &[&project]).await?;
        let keys = keys.iter().map(|row| row.try_get(0)).collect::<std::result::Result<HashSet<String>, _>>()?;
        let orphans: Vec<&ListedArchive> = listed.into_values().filter(|it| !keys.contains(&it.key)).collect();
        self.delete_orphans(project, &orphans, orphan_days).await?;
        if self.desired.is_deleted(project) && self.archives.list(project).await?.is_empty() {
            self.archives.delete_unfinished(project).await?;
            self.observer.report_deleted_backups(project);
        }
        Ok(())
    }

    async fn delete_orphans(&self, project: &str, orphans: &[&ListedArchive], orphan_days: Option<u32>) -> Result<()> {
        if !is_plausible(&*self.connect().await?, &self.clock).await? {
            return Ok(());
        }
        let now = clock::now();
        let age = |created_at: SystemTime| now.duration_since(created_at).unwrap_or_default();
        for orphan in orphans {
            let is_old = orphan.created_at.zip(orphan_days).is_some_and(|(at, days)| age(at) > DAY * days);
            // The deletion of a purged project stops if the control plane is restored from a backup in which the project
            // exists.
            let is_surplus = is_old || self.desired.is_deleted(project);
            if is_surplus && !self.is_needed(project, &orphan.key) && self.delete_archive(&orphan.key).await {
                self.metrics.count_removed("orphaned");
                tracing::info!(key = orphan.key, "deleted an object without a record");
            }
        }
        Ok(())
    }
}
