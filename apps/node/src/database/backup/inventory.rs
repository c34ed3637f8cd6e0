//! The comparison of the records with the objects in the store.

use std::collections::{HashMap, HashSet};
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
    /// if the node loses its own database. If the store fails to list a project, continues with the others. Returns
    /// whether all projects were listed.
    pub(super) async fn compare_store(&self) -> Result<bool> {
        let mut projects: HashMap<String, u32> = HashMap::new();
        for row in self.connect().await?.query("SELECT DISTINCT project FROM svc.dumps", &[]).await? {
            projects.insert(row.try_get(0)?, 0);
        }
        projects.extend(self.desired.backup_days());
        let mut is_complete = true;
        for (project, backup_days) in projects {
            match self.compare_project(&project, backup_days.saturating_add(1).max(ORPHAN_DAYS)).await {
                Err(error @ BackupError::Store(_)) => {
                    is_complete = false;
                    tracing::warn!(project, error = error_chain(error), "failed to list the backups of a project");
                }
                compared => compared?,
            }
        }
        Ok(is_complete)
    }

    async fn compare_project(&self, project: &str, orphan_days: u32) -> Result<()> {
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
        self.delete_orphans(project, &orphans, orphan_days).await
    }

    async fn delete_orphans(&self, project: &str, orphans: &[&ListedArchive], orphan_days: u32) -> Result<()> {
        if !is_plausible(&*self.connect().await?, &self.clock).await? {
            return Ok(());
        }
        let now = clock::now();
        let age = |created_at: SystemTime| now.duration_since(created_at).unwrap_or_default();
        for orphan in orphans {
            let is_old = orphan.created_at.is_some_and(|created_at| age(created_at) > DAY * orphan_days);
            if is_old && !self.is_needed(project, &orphan.key) && self.delete_archive(&orphan.key).await {
                self.metrics.count_removed("orphaned");
                tracing::info!(key = orphan.key, "deleted an old object without a record");
            }
        }
        Ok(())
    }
}
