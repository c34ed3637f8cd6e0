//! The state of each project's backups.

use std::time::{Duration, SystemTime};

use tokio_postgres::Row;

use super::Service;
use super::error::Result;
use super::records::Dump;
use crate::clock::rfc3339;
use crate::database::registry::Entry;

/// The minimum number of days for which the generations of a removed database are kept.
const REMOVED_DAYS: i32 = 30;

/// The time after which a write appears in the counters of Postgres.
pub const COUNTER_DELAY: Duration = Duration::from_secs(60);

/// The state of the backups of a database.
#[derive(Debug, Clone)]
pub struct BackupState {
    pub project: String,
    /// The database's id.
    pub database: String,
    /// The time of the last backup that succeeded or was skipped; before the first backup, the time at which the node
    /// first saw the database.
    pub scheduled_at: SystemTime,
    /// All writes before this time are contained in the generations.
    fresh_at: Option<SystemTime>,
    /// Identifies the content of the last generation.
    pub fingerprint: Option<String>,
    checked_at: Option<SystemTime>,
    error: Option<String>,
}

impl BackupState {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            project: row.try_get("project")?,
            database: row.try_get("database")?,
            scheduled_at: row.try_get("scheduled_at")?,
            fresh_at: row.try_get("fresh_at")?,
            fingerprint: row.try_get("fingerprint")?,
            checked_at: row.try_get("checked_at")?,
            error: row.try_get("error")?,
        })
    }
}

impl Service {
    /// Returns the states of all projects.
    pub(super) async fn states(&self) -> Result<Vec<BackupState>> {
        let rows = self.connect().await?.query("SELECT * FROM svc.backups", &[]).await?;
        rows.iter().map(BackupState::read).collect()
    }

    /// Creates the state of a database, and deletes the state of an earlier database of the project.
    pub(super) async fn begin_state(&self, entry: &Entry, now: SystemTime) -> Result<()> {
        let upsert = "INSERT INTO svc.backups AS b (project, database, scheduled_at) VALUES ($1, $2, $3) \
                      ON CONFLICT (project) DO UPDATE SET database = excluded.database, \
                      scheduled_at = excluded.scheduled_at, \
                      fresh_at = NULL, fingerprint = NULL, checked_at = NULL, error = NULL \
                      WHERE b.database <> excluded.database";
        self.connect().await?.execute(upsert, &[&entry.project, &entry.desired.id, &now]).await?;
        Ok(())
    }

    /// Records a new generation. `fingerprint` identifies its content.
    pub(super) async fn set_backed_up(&self, entry: &Entry, dump: &Dump, fingerprint: Option<&str>) -> Result<()> {
        let update = "UPDATE svc.backups SET scheduled_at = $3, fresh_at = $3, fingerprint = $4, error = NULL, \
                      checked_at = now() WHERE project = $1 AND database = $2";
        let connection = self.connect().await?;
        connection.execute(update, &[&entry.project, &entry.desired.id, &dump.created_at, &fingerprint]).await?;
        Ok(())
    }

    /// Records that the last generation still contains everything that was written before a time.
    pub(super) async fn set_unchanged(&self, entry: &Entry, at: SystemTime) -> Result<()> {
        let update = "UPDATE svc.backups SET scheduled_at = $3, fresh_at = least(greatest(fresh_at, $4), $3), error = NULL \
                      WHERE project = $1 AND database = $2";
        let fresh_at = at - COUNTER_DELAY;
        let connection = self.connect().await?;
        connection.execute(update, &[&entry.project, &entry.desired.id, &at, &fresh_at]).await?;
        Ok(())
    }

    /// Records why backups of a database fail.
    pub(super) async fn set_error(&self, project: &str, database: &str, error: &str) -> Result<()> {
        let update = "UPDATE svc.backups SET error = $3 WHERE project = $1 AND database = $2";
        self.connect().await?.execute(update, &[&project, &database, &error]).await?;
        Ok(())
    }

    /// Records that an object was checked.
    pub(super) async fn set_checked(&self, key: &str) -> Result<()> {
        let update = "WITH checked AS (UPDATE svc.dumps SET checked_at = now() WHERE key = $1 RETURNING database) \
                      UPDATE svc.backups SET checked_at = now() WHERE database IN (SELECT database FROM checked)";
        self.connect().await?.execute(update, &[&key]).await?;
        Ok(())
    }

    /// Records that an object is missing or corrupt. The next scheduled backup is not skipped.
    pub(super) async fn set_damaged(&self, key: &str, error: &str) -> Result<()> {
        let update = "WITH damaged AS (UPDATE svc.dumps SET damaged = true, checked_at = now() \
                      WHERE key = $1 RETURNING database, kind) \
                      UPDATE svc.backups SET fingerprint = NULL, error = $2, checked_at = now() \
                      WHERE database IN (SELECT database FROM damaged WHERE kind <> 'export')";
        self.connect().await?.execute(update, &[&key, &error]).await?;
        Ok(())
    }

    pub(super) async fn keep_after_removal(&self, project: &str) -> Result<()> {
        let mut connection = self.connect().await?;
        let transaction = connection.transaction().await?;
        let keep = "UPDATE svc.dumps SET keep_until = now() + $2 * interval '1 day' \
                    WHERE project = $1 AND kind <> 'export' AND keep_until IS NULL";
        transaction.execute(keep, &[&project, &f64::from(REMOVED_DAYS)]).await?;
        transaction.execute("DELETE FROM svc.backups WHERE project = $1", &[&project]).await?;
        Ok(transaction.commit().await?)
    }

    /// Copies the state into the report of the project.
    pub(super) fn publish(&self, state: &BackupState) {
        self.statuses.update(&state.project, |report| {
            if report.database == state.database {
                report.fresh_at = state.fresh_at.map(rfc3339);
                report.checked_at = state.checked_at.map(rfc3339);
                report.backup_error = state.error.clone().or_else(|| self.version_error());
            }
        });
    }
}
