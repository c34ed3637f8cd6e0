//! Background jobs. Every server of an installation runs them, so runs may overlap.

use kernel::NamedProject;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome, is_full_batch};

use super::export::{TIMED_OUT, TIMEOUT_SECONDS};
use super::{DAY, Databases, Result};
use crate::ports::Notice;
use crate::repository::{
    BackupDays, ExportRepository as _, GenerationRepository as _, OperationRepository as _, ReportRepository as _,
    StaleBackup, TokenRepository as _,
};

/// The number of days for which ended operations are kept.
const OPERATION_DAYS: i64 = 30;

/// The number of days for which a node keeps exports.
const EXPORT_DAYS: i64 = 7;

impl Databases {
    /// Deletes expired tokens, generations that the node no longer keeps, and old operations and exports. Ends exports
    /// that are overdue because the caller disconnected and the node did not respond. Returns the number of rows.
    ///
    /// # Errors
    /// Returns [`DatabaseError::Store`](crate::DatabaseError::Store).
    pub async fn purge(&self) -> Result<usize> {
        let mut total = 0;
        loop {
            let (rows, is_full) = self.purge_batch().await?;
            total += rows;
            if !is_full {
                return Ok(total);
            }
        }
    }

    async fn purge_batch(&self) -> Result<(usize, bool)> {
        let now = self.store.clock_rng().now();
        let days = BackupDays { free: self.limits.free.backup_days, pro: self.limits.pro.backup_days };
        self.store
            .transaction(&Actor::service("databases.purge"), async |tx: &mut Connection| {
                let tokens = tx.token_purge(now).await?;
                let operations = tx.operation_purge(now.plus_seconds(-OPERATION_DAYS * DAY)).await?;
                let overdue = tx.export_fail_overdue(now.plus_seconds(-TIMEOUT_SECONDS), TIMED_OUT, now).await?;
                let exports = overdue + tx.export_purge(now.plus_seconds(-EXPORT_DAYS * DAY)).await?;
                let generations = tx.generation_purge(days, now).await?;
                let purged = [tokens, operations, exports, generations];
                let (rows, is_full) = (purged.iter().sum(), purged.into_iter().any(is_full_batch));
                if rows == 0 {
                    return Ok(Outcome::Unchanged((0, false)));
                }
                let data = json!({
                    "tokens": tokens, "operations": operations, "exports": exports, "generations": generations,
                });
                let (name, target) = ("database.purge", "databases".to_owned());
                Ok(Outcome::Changed((rows, is_full), Event::of_platform(name, target, data)))
            })
            .await
    }

    /// Notifies the organizations of databases whose backups became too old, and returns their number.
    ///
    /// # Errors
    /// Returns [`DatabaseError::Store`](crate::DatabaseError::Store).
    pub async fn notify_stale(&self) -> Result<usize> {
        let now = self.store.clock_rng().now();
        let mut total = 0;
        loop {
            let notified = self
                .store
                .transaction_unaudited(async |tx: &mut Connection| {
                    tx.backup_unmark_fresh(now).await?;
                    let stale = tx.backup_mark_stale(now).await?;
                    let notified = stale.len();
                    for StaleBackup { org_id, project_id, name, fresh_at } in stale {
                        let project = NamedProject { id: project_id, name };
                        let notice = Notice::BackupStale { project, since: fresh_at };
                        self.ports.organizations.raise(tx, org_id, notice).await?;
                    }
                    store::Result::Ok(notified)
                })
                .await?;
            total += notified;
            if !is_full_batch(notified) {
                return Ok(total);
            }
        }
    }
}
