//! Detection of changes in a database.
//!
//! The write counters of Postgres count changed rows, including those of catalogs and large objects. Postgres discards
//! the counters when it recovers from a crash; `stats_reset` of the background writer shows this. The counters do not
//! count changes of a sequence, so the fingerprint contains a digest of the sequences' values.

use super::Service;
use super::error::{BackupError, Result};
use super::project::COUNTER_DELAY;
use crate::database::registry::Entry;
use crate::database::server::Credentials;

const COUNTERS: &str = "
    SELECT concat_ws(' ', d.oid, s.tup_inserted, s.tup_updated, s.tup_deleted, s.stats_reset, b.stats_reset,
        pg_postmaster_start_time())
    FROM pg_database d JOIN pg_stat_database s ON s.datid = d.oid CROSS JOIN pg_stat_bgwriter b
    WHERE d.datname = $1";

/// Reads only the sequences of the owner, because the login cannot read the values of others.
const SEQUENCES: &str = "
    SELECT md5(coalesce(string_agg(concat_ws(' ', schemaname, sequencename, last_value), E'\\n'
        ORDER BY schemaname, sequencename), ''))
    FROM pg_catalog.pg_sequences";

/// Postgres adds the writes of a statement to the counters when the statement ends, even if a procedure commits them
/// earlier.
const LONG_STATEMENTS: &str = "
    SELECT count(*) > 0 FROM pg_stat_activity
    WHERE datname = $1 AND usename <> $2 AND state IN ('active', 'fastpath function call')
        AND query_start < now() - $3 * interval '1 second'";

impl Service {
    /// Returns a text that identifies the content of a database: if two fingerprints are equal, nothing was written
    /// between them. A write can take up to a minute to change the fingerprint.
    pub(super) async fn fingerprint(&self, entry: &Entry) -> Result<String> {
        let database = &entry.credentials.database;
        let counters: String = self.connect().await?.query_one(COUNTERS, &[database]).await?.try_get(0)?;
        let client = entry.credentials.connect_to_read().await.map_err(|error| BackupError::Connect(error.into()))?;
        let sequences: String = client.query_one(SEQUENCES, &[]).await?.try_get(0)?;
        Ok(format!("{counters} {sequences}"))
    }

    /// Returns whether a tenant's statement has run for so long that the counters may lack writes which it has already
    /// committed.
    pub(super) async fn has_long_statement(&self, entry: &Entry) -> Result<bool> {
        let Credentials { database, user, .. } = &*entry.credentials;
        let age = COUNTER_DELAY.min(self.interval).as_secs_f64();
        let row = self.connect().await?.query_one(LONG_STATEMENTS, &[database, user, &age]).await?;
        Ok(row.try_get(0)?)
    }

    /// Returns whether an undamaged scheduled generation of this database is recent enough to skip the next one. Even
    /// an unchanged database is dumped again before its last generation expires.
    pub(super) async fn has_recent_generation(&self, entry: &Entry) -> Result<bool> {
        let select = "SELECT count(*) > 0 FROM svc.dumps WHERE project = $1 AND database = $2 AND kind = 'scheduled' \
                      AND stored AND NOT damaged AND created_at > now() - $3 * interval '1 day'";
        let days = f64::from(entry.desired.backup_days) / 2.0;
        let row = self.connect().await?.query_one(select, &[&entry.project, &entry.desired.id, &days]).await?;
        Ok(row.try_get(0)?)
    }
}
