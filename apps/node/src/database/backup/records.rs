//! The rows of dumps.

use std::time::SystemTime;

use protocol::{GenerationKind, GenerationRef, GenerationReport};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Service;
use super::error::{BackupError, Result};
use super::kind::Kind;
use crate::clock::rfc3339;
use crate::database::admin::AdminConnection;

/// A stored dump.
#[derive(Debug, Clone)]
pub struct Dump {
    pub project: String,
    pub database: String,
    pub kind: Kind,
    pub epoch: i64,
    /// The operation or the export for which it was made.
    pub cause: Option<String>,
    pub created_at: SystemTime,
    pub object: GenerationRef,
}

/// A dump that is about to start.
pub struct NewDump<'a> {
    pub project: &'a str,
    pub database: &'a str,
    pub kind: Kind,
    pub epoch: i64,
    pub cause: Option<&'a str>,
    pub days: i32,
}

/// The number of dumps that are read at a time to be reported.
pub const MAX_UNREPORTED: usize = 500;

const COLUMNS: &str = "key, project, database, kind, epoch, cause, created_at, size_bytes, sha256";

impl Dump {
    /// Reads a stored dump from a row with [`COLUMNS`]. Returns `None` if the kind is unknown, because a later version
    /// wrote the row.
    fn read(row: &Row) -> Result<Option<Self>> {
        let Some(kind) = Kind::from_word(row.try_get("kind")?) else { return Ok(None) };
        let size: i64 = row.try_get("size_bytes")?;
        Ok(Some(Self {
            project: row.try_get("project")?,
            database: row.try_get("database")?,
            kind,
            epoch: row.try_get("epoch")?,
            cause: row.try_get("cause")?,
            created_at: row.try_get("created_at")?,
            object: GenerationRef {
                key: row.try_get("key")?,
                size_bytes: size.unsigned_abs(),
                sha256: row.try_get("sha256")?,
            },
        }))
    }

    /// Returns the report on a generation of this kind.
    pub fn report(&self, kind: GenerationKind) -> GenerationReport {
        GenerationReport {
            database: self.database.clone(),
            key: self.object.key.clone(),
            epoch: self.epoch,
            kind,
            size_bytes: self.object.size_bytes,
            sha256: self.object.sha256.clone(),
            created_at: rfc3339(self.created_at),
        }
    }
}

impl Service {
    pub(super) async fn connect(&self) -> Result<AdminConnection> {
        self.admin.connect().await.map_err(BackupError::Connect)
    }

    /// Records a dump before its object is written, so that the object can be deleted if the dump is interrupted.
    pub(super) async fn begin(&self, dump: &NewDump<'_>, key: &str, created_at: SystemTime) -> Result<()> {
        let insert = "INSERT INTO svc.dumps (key, project, database, kind, epoch, cause, created_at, days, outdated) \
                      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, EXISTS (SELECT FROM svc.databases \
                          WHERE id = $3 AND unlisted_since IS NOT NULL AND NOT is_withdrawn))";
        let NewDump { project, database, kind, epoch, cause, days } = dump;
        let connection = self.connect().await?;
        connection.execute(insert, &[&key, project, database, &kind.as_str(), epoch, cause, &created_at, days]).await?;
        Ok(())
    }

    /// Records that the object is stored and verified. Fails if its deletion has begun.
    pub(super) async fn complete(&self, object: &GenerationRef) -> Result<()> {
        let update = "UPDATE svc.dumps SET stored = true, size_bytes = $2, sha256 = $3, checked_at = now() \
                      WHERE key = $1 AND NOT stored AND NOT abandoned";
        let size = i64::try_from(object.size_bytes).unwrap_or(i64::MAX);
        match self.connect().await?.execute(update, &[&object.key, &size, &object.sha256]).await? {
            1 => Ok(()),
            _ => Err(BackupError::Dump("its record was removed".to_owned())),
        }
    }

    /// Begins the deletion of an interrupted dump, which is then never stored. Returns false if the dump is stored.
    pub(super) async fn abandon(&self, key: &str) -> Result<bool> {
        let update = "UPDATE svc.dumps SET abandoned = true WHERE key = $1 AND NOT stored";
        Ok(self.connect().await?.execute(update, &[&key]).await? == 1)
    }

    /// Returns the stored dump of an operation or an export.
    pub(super) async fn find_by_cause(&self, cause: &str) -> Result<Option<Dump>> {
        let select = format!("SELECT {COLUMNS} FROM svc.dumps WHERE cause = $1 AND stored");
        let row = self.connect().await?.query_opt(&select, &[&cause]).await?;
        Ok(row.as_ref().map(Dump::read).transpose()?.flatten())
    }

    /// Returns the stored dumps to report that the control plane has not accepted yet.
    pub(super) async fn unreported(&self) -> Result<Vec<Dump>> {
        let unreported = format!("stored AND NOT reported AND NOT outdated ORDER BY number LIMIT {MAX_UNREPORTED}");
        self.dumps(&unreported, &[]).await
    }

    /// Marks the stored dumps as not yet accepted by the control plane, except those of a removed database whose
    /// retention is over. The control plane has purged the rows of these generations.
    pub(super) async fn unmark_reported(&self) -> Result<()> {
        let update = "UPDATE svc.dumps SET reported = false WHERE stored AND reported AND NOT damaged \
                      AND (created_at + days * interval '1 day' > now() \
                          OR database IN (SELECT id FROM svc.databases))";
        self.connect().await?.execute(update, &[]).await?;
        Ok(())
    }

    /// Returns the stored dumps that match a condition with these parameters.
    pub(super) async fn dumps(&self, condition: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Dump>> {
        let select = format!("SELECT {COLUMNS} FROM svc.dumps WHERE {condition}");
        let rows = self.connect().await?.query(&select, parameters).await?;
        rows.iter().filter_map(|row| Dump::read(row).transpose()).collect()
    }

    pub(super) async fn mark_reported(&self, key: &str) -> Result<()> {
        self.connect().await?.execute("UPDATE svc.dumps SET reported = true WHERE key = $1", &[&key]).await?;
        Ok(())
    }

    pub(super) async fn remove_record(&self, key: &str) -> Result<()> {
        self.connect().await?.execute("DELETE FROM svc.dumps WHERE key = $1", &[&key]).await?;
        Ok(())
    }
}
