//! Reports of the home node about databases.

use kernel::ProjectId;
use store::Connection;

use super::{Databases, Progress};
use crate::ports::Notice;
use crate::repository::{Before, GenerationRepository as _, Observation, ReportRepository as _, TokenRepository as _};

impl Databases {
    /// Stores a report of the home node, in the transaction that accepts it. Ignores a report of an earlier revision,
    /// or of a deleted database. Notifies the organization once for each change that concerns it.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn observe(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        observed: Observation,
        progress: Option<Progress>,
    ) -> store::Result<()> {
        // The project was deleted, but its node still reports.
        if self.ports.placements.lock(tx, project).await?.is_none() {
            return Ok(());
        }
        if let Some(before) = tx.database_observe(project, &observed).await? {
            tx.token_delete_revoked(observed.database, observed.revision).await?;
            self.notify_changes(tx, project, &before, &observed).await?;
        }
        if let Some(at) = observed.checked_at {
            tx.generations_set_checked(project, at).await?;
        }
        match progress {
            Some(progress) => self.progress(tx, project, progress).await,
            None => Ok(()),
        }
    }

    async fn notify_changes(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        before: &Before,
        observed: &Observation,
    ) -> store::Result<()> {
        if observed.read_only && !before.read_only {
            let limit = |plan| self.limits.for_plan(plan).database_bytes;
            let notice = |project, plan| Notice::DatabaseLimit { project, limit_bytes: limit(plan) };
            self.raise(tx, project, notice).await?;
        }
        if let Some(reason) = observed.backup_error.clone().filter(|_| !before.backup_failed) {
            self.raise(tx, project, |project, _| Notice::BackupFailed { project, reason }).await?;
        }
        let recovered = observed.recovered_from.as_ref().filter(|key| Some(*key) != before.recovered_key.as_ref());
        if let Some(key) = recovered
            && let Some(generation) = tx.generation_by_key(project, key).await?
        {
            tracing::warn!(%project, key, "node recovered a database from a generation");
            let (epoch, seq) = (generation.epoch, generation.seq);
            self.raise(tx, project, |project, _| Notice::RestoreCompleted { project, epoch, seq }).await?;
        }
        Ok(())
    }
}
