//! Removal of sessions and identities that have ended, and of the oldest sessions above the limit of the table.
//!
//! All rows are removed in small batches, each in its own transaction, so that no visitor waits for them. A vacuum then
//! makes the space reusable. Nothing is written if nothing must be removed, so that an unused database needs no backup.
//!
//! The node's state can be older than the rows, for example after a restart. So only rows that this state knows to have
//! ended are removed: those of earlier grants, epochs and registrations. Rows of later ones stay.

use std::time::Duration;

use protocol::Auth;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::sessions::{lifetime, registrations};
use super::{Pool, Result, pool, schema};

/// The limit of the table with its indexes, in bytes (control-api.md, "Limits").
const MAX_BYTES: i64 = 150_000_000;
/// The size of a session with its index entries and with space that is not used yet, in bytes. A test compares it with a
/// real table.
const SESSION_BYTES: i64 = 360;
/// The number of rows of a batch.
const BATCH: i64 = 2000;
/// The longest time of a statement of the upkeep.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The limits of the table of sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// The largest size of the table with its indexes, in bytes.
    pub max_bytes: i64,
}

/// The numbers of removed rows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Identities of providers that are not registered any more.
    pub identities: u64,
    /// Sessions that had ended.
    pub ended: u64,
    /// The oldest sessions, above the limit.
    pub oldest: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { max_bytes: MAX_BYTES }
    }
}

impl SessionLimits {
    /// Returns the number of sessions that remain after the removal of the oldest: 70 % of the limit.
    const fn kept(self) -> i64 {
        self.max_bytes / 10 * 7 / SESSION_BYTES
    }

    /// Returns the number of sessions above which the oldest are removed: 80 % of the limit.
    const fn max_sessions(self) -> i64 {
        self.max_bytes / 10 * 8 / SESSION_BYTES
    }
}

/// Removes what has ended in the database of a project, and the oldest sessions above the limit.
///
/// # Errors
/// Returns an error if the database fails.
pub async fn clean(pool: &Pool, auth: &Auth, limits: SessionLimits) -> Result<Removed> {
    let access = pool.access()?;
    let mut client = pool::connect(&access, STATEMENT_TIMEOUT).await?;
    schema::prepare(&mut client, &access).await?;
    let client = &client;
    let removed = Removed {
        identities: remove_ended_identities(client, auth).await?,
        ended: remove_ended_sessions(client, auth, access.epoch).await?,
        oldest: remove_oldest(client, limits).await?,
    };
    if removed.ended + removed.oldest > 0 {
        client.batch_execute("VACUUM (ANALYZE) svc_auth.sessions").await?;
    }
    if size(client).await? > limits.max_bytes {
        // A vacuum returns only the space at the end of the table. Sessions wait for the few seconds of this statement.
        client.batch_execute("VACUUM (FULL, ANALYZE) svc_auth.sessions").await?;
    }
    Ok(removed)
}

async fn remove_ended_identities(client: &Client, auth: &Auth) -> Result<u64> {
    const REMOVE: &str = "
        DELETE FROM svc_auth.identities WHERE (provider, subject) IN (
            SELECT provider, subject FROM svc_auth.identities
            WHERE registration <= $1
                AND (provider, registration) NOT IN (SELECT * FROM unnest($2::text[], $3::bigint[])) LIMIT $4)";
    let (providers, registrations) = registrations(auth);
    remove_in_batches(client, REMOVE, &[&auth.provider_revision, &providers, &registrations, &BATCH]).await
}

async fn remove_ended_sessions(client: &Client, auth: &Auth, epoch: i64) -> Result<u64> {
    const REMOVE: &str = r#"
        DELETE FROM svc_auth.sessions WHERE token IN (
            SELECT token FROM svc_auth.sessions
            WHERE "grant" < $1 OR epoch < $2 OR used_at < now() - $3 * interval '1 second'
                OR registration <= $4
                AND (provider, registration) NOT IN (SELECT * FROM unnest($5::text[], $6::bigint[])) LIMIT $7)"#;
    let (providers, registrations) = registrations(auth);
    let lifetime = lifetime(auth).as_secs_f64();
    let parameters: [&(dyn ToSql + Sync); 7] =
        [&auth.grant, &epoch, &lifetime, &auth.provider_revision, &providers, &registrations, &BATCH];
    remove_in_batches(client, REMOVE, &parameters).await
}

/// Removes the sessions that were not used for the longest time, if the table nears its limit.
async fn remove_oldest(client: &Client, limits: SessionLimits) -> Result<u64> {
    const REMOVE: &str = "
        DELETE FROM svc_auth.sessions WHERE token IN (SELECT token FROM svc_auth.sessions ORDER BY used_at LIMIT $1)";
    // Counting is slow, so small tables are not counted.
    if size(client).await? < limits.max_bytes / 2 {
        return Ok(0);
    }
    let count: i64 = client.query_one("SELECT count(*) FROM svc_auth.sessions", &[]).await?.try_get(0)?;
    if count <= limits.max_sessions() {
        return Ok(0);
    }
    let (statement, mut removed) = (client.prepare(REMOVE).await?, 0);
    let mut excess = count - limits.kept();
    while excess > 0 {
        let batch = client.execute(&statement, &[&excess.min(BATCH)]).await?;
        removed += batch;
        excess -= i64::try_from(batch).unwrap_or(excess);
        if batch == 0 {
            break;
        }
    }
    Ok(removed)
}

async fn remove_in_batches(client: &Client, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<u64> {
    let (statement, mut removed) = (client.prepare(statement).await?, 0);
    loop {
        let batch = client.execute(&statement, parameters).await?;
        removed += batch;
        if i64::try_from(batch).unwrap_or(BATCH) < BATCH {
            return Ok(removed);
        }
    }
}

/// Returns the size of the table with its indexes, in bytes.
async fn size(client: &Client) -> Result<i64> {
    const SIZE: &str = "SELECT pg_total_relation_size('svc_auth.sessions')";
    Ok(client.query_one(SIZE, &[]).await?.try_get(0)?)
}
