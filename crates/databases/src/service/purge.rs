//! Background jobs. Every server of an installation runs them, so runs may overlap.

use kernel::audit::{Actor, Event};
use kernel::{NamedProject, ProjectId, Time};
use serde_json::json;
use store::{Connection, Outcome, is_full_batch};

use super::export::{TIMED_OUT, TIMEOUT_SECONDS};
use super::{DAY, Databases, Result};
use crate::ports::Notice;
use crate::repository::{
    BackupDays, DatabaseRange, ExportRepository as _, GenerationRepository as _, OperationRepository as _,
    ProjectRepository as _, ReportRepository as _, StaleBackup, TokenRepository as _,
};

/// The number of days for which ended operations are kept.
const OPERATION_DAYS: i64 = 30;

/// The number of days for which a node keeps exports.
const EXPORT_DAYS: i64 = 7;

/// The number of notifications in a transaction, which locks their databases.
const MAX_NOTICES: usize = 50;

impl Databases {
    /// Deletes expired tokens, generations that the node no longer keeps, and old operations and exports. Ends exports
    /// that are overdue because the caller disconnected and the node did not respond. Returns the number of rows.
    ///
    /// # Errors
    /// Returns [`DatabaseError::Store`](crate::DatabaseError::Store). Batches before the error stay purged.
    pub async fn purge(&self) -> Result<usize> {
        let now = self.store.clock_rng().now();
        let mut total = 0;
        for purge in [Purge::Tokens, Purge::Operations, Purge::OverdueExports, Purge::Exports] {
            loop {
                let rows = self.purge_batch(purge, now).await?;
                total += rows;
                if !is_full_batch(rows) {
                    break;
                }
            }
        }
        Ok(total + self.purge_generations(now).await?)
    }

    /// Deletes the generations whose retention is over, the oldest first. Most old generations can still be kept, so
    /// each batch begins at the end of the previous batch.
    async fn purge_generations(&self, now: Time) -> Result<usize> {
        let days = BackupDays { free: self.limits.free.backup_days, pro: self.limits.pro.backup_days };
        let (mut total, mut start) = (0, None);
        loop {
            let end = self.store.connection().await?.generation_batch_end(days, now, start).await?;
            let Some(end) = end else { return Ok(total) };
            total += self.purge_batch(Purge::Generations { days, start, end }, now).await?;
            start = Some(end);
        }
    }

    /// Purges a batch in its own transaction, so that a slow purge does not roll back another one. Returns the number
    /// of rows.
    async fn purge_batch(&self, purge: Purge, now: Time) -> Result<usize> {
        self.store
            .transaction(&Actor::service("databases.purge"), async |tx: &mut Connection| {
                let rows = purge.run(tx, now).await?;
                if rows == 0 {
                    return Ok(Outcome::Unchanged(0));
                }
                let data = json!({ (purge.table()): rows });
                Ok(Outcome::Changed(rows, Event::of_platform("database.purge", "databases".to_owned(), data)))
            })
            .await
    }

    /// Begins to delete the backups of a purged project, in the transaction that purges it. This is a no-op for a
    /// project without a reported generation: its node has no backup store, or never completed a backup.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn backups_purge(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        if tx.sequence_has_generation(project).await? {
            self.ports.part.publish_deletion(tx, project).await?;
        }
        Ok(())
    }

    /// Receives the report that no backup of a purged project exists any more, in the transaction that accepts it.
    /// Ignores a report about another project, and a repeated report.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn backups_deleted(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        self.ports.part.end_deletion(tx, project).await
    }

    /// Notifies the organizations of databases whose backups became too old, and returns their number.
    ///
    /// # Errors
    /// Returns [`DatabaseError::Store`](crate::DatabaseError::Store). Databases before the error stay notified.
    pub async fn notify_stale(&self) -> Result<usize> {
        let (mut total, mut after) = (0, None);
        loop {
            let range = self.store.connection().await?.database_range(after).await?;
            let Some(range) = range else { return Ok(total) };
            let now = self.store.clock_rng().now();
            let unmark = async |tx: &mut Connection| tx.backup_unmark_fresh(range, now).await;
            self.store.transaction_unaudited(unmark).await?;
            loop {
                let notified = self.notify_stale_in(range).await?;
                total += notified;
                if notified < MAX_NOTICES {
                    break;
                }
            }
            after = Some(range.last);
        }
    }

    /// Notifies the organizations of at most [`MAX_NOTICES`] databases of the range, and returns their number.
    async fn notify_stale_in(&self, range: DatabaseRange) -> Result<usize> {
        let limit = i64::try_from(MAX_NOTICES).unwrap_or(i64::MAX);
        // Other servers also mark databases, so a time before the previous transactions would be too old.
        let now = self.store.clock_rng().now();
        let work = async |tx: &mut Connection| {
            let stale = tx.backup_mark_stale(range, now, limit).await?;
            let notified = stale.len();
            for StaleBackup { org_id, project_id, name, fresh_at } in stale {
                let project = NamedProject { id: project_id, name };
                let notice = Notice::BackupStale { project, since: fresh_at };
                self.ports.organizations.raise(tx, org_id, notice).await?;
            }
            store::Result::Ok(notified)
        };
        Ok(self.store.transaction_unaudited(work).await?)
    }
}

/// A table to purge.
#[derive(Debug, Clone, Copy)]
enum Purge {
    Tokens,
    Operations,
    OverdueExports,
    Exports,
    /// The generations that were made at `start` or later, and before `end`.
    Generations {
        days: BackupDays,
        start: Option<Time>,
        end: Time,
    },
}

impl Purge {
    /// Returns the name of the table in the audit data.
    const fn table(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Operations => "operations",
            Self::OverdueExports | Self::Exports => "exports",
            Self::Generations { .. } => "generations",
        }
    }

    /// Purges a batch, and returns the number of rows.
    async fn run(self, tx: &mut Connection, now: Time) -> store::Result<usize> {
        match self {
            Self::Tokens => tx.token_purge(now).await,
            Self::Operations => tx.operation_purge(now.plus_seconds(-OPERATION_DAYS * DAY)).await,
            Self::OverdueExports => tx.export_fail_overdue(now.plus_seconds(-TIMEOUT_SECONDS), TIMED_OUT, now).await,
            Self::Exports => tx.export_purge(now.plus_seconds(-EXPORT_DAYS * DAY)).await,
            Self::Generations { days, start, end } => tx.generation_purge(days, now, start, end).await,
        }
    }
}
