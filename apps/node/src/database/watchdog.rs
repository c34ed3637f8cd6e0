//! Protects the lock table, the [connections](super::connections) and the
//! [queue of notifications](super::notify_queue), which all databases of the cluster share.
//!
//! One session can fill the lock table, for example with advisory locks. Then every login and every statement that
//! needs a new lock fails, even as superuser, because Postgres keeps the locks of shared catalogs in this table.
//! Therefore the watchdog keeps one session open, in a transaction that already holds every lock that it needs to end a
//! session with too many locks.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;
use tokio_postgres::{Client, Error, Statement};

use super::DatabaseMetrics;
use super::admin::Admin;
use super::connections::{ConnectionGuard, ConnectionLimits};
use super::notify_queue::{Checked, MAX_USAGE, NotifyQueue};

const INTERVAL: Duration = Duration::from_secs(1);

/// Begins the transaction and takes its locks. While it is idle, it has no snapshot, so it does not delay `VACUUM`.
const BEGIN: &str = "
    SET idle_in_transaction_session_timeout = 0;
    BEGIN;
    LOCK TABLE pg_authid, pg_auth_members, pg_database IN ACCESS SHARE MODE;
    SELECT FROM pg_authid r LEFT JOIN pg_auth_members m ON m.member = r.oid WHERE r.rolname = current_user";

/// Selects the size of the lock table.
const CAPACITY: &str = "
    SELECT current_setting('max_locks_per_transaction')::bigint
        * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)";

/// Ends sessions with many locks ($1: the size of the lock table). A login may hold 2,000 locks, and a dump or a
/// restore a tenth of the lock table. All sessions of one database together may hold an eighth of it.
const TERMINATE: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM (
        SELECT a.pid, count(*) AS locks, sum(count(*)) OVER (PARTITION BY a.datid) AS total,
            r.rolsuper OR r.rolname ~ '^(dump|load)_' AS is_trusted
        FROM pg_lock_status() l
        JOIN pg_stat_get_activity(NULL) a ON a.pid = l.pid
        JOIN pg_authid r ON r.oid = a.usesysid
        WHERE l.mode <> 'SIReadLock' AND a.pid <> pg_backend_pid()
        GROUP BY a.pid, a.datid, r.rolsuper, r.rolname
    ) AS held
    WHERE CASE WHEN is_trusted THEN locks > greatest(2000, $1::bigint / 10)
        ELSE locks > 2000 OR locks > 100 AND total > $1::bigint / 8 END";

/// Watches until the task is stopped.
pub async fn run(admin: Admin, metrics: DatabaseMetrics) {
    admin.acquired().await;
    loop {
        if let Err(error) = watch(&admin, &metrics).await {
            tracing::warn!(error = format!("{error:#}"), "failed to watch the shared resources of Postgres; retrying");
        }
        sleep(INTERVAL).await;
    }
}

/// Watches until the session fails.
async fn watch(admin: &Admin, metrics: &DatabaseMetrics) -> anyhow::Result<()> {
    let session = admin.session().await.context("failed to connect to Postgres")?;
    let capacity: i64 = session.query_one(CAPACITY, &[]).await?.get(0);
    session.batch_execute(BEGIN).await?;
    let terminate = session.prepare(TERMINATE).await?;
    let connections = ConnectionGuard::prepare(&session, ConnectionLimits::default()).await?;
    let mut queue = NotifyQueue::prepare(&session, MAX_USAGE).await?;
    loop {
        // Without the second statement, Postgres would return the activity as of the transaction's first query.
        session.batch_execute("SAVEPOINT before; SELECT pg_stat_clear_snapshot()").await?;
        // The first executions also take the locks of the indexes.
        let checked = check(&session, (&terminate, capacity), &connections, &mut queue, metrics).await;
        let end = if checked.is_ok() { "RELEASE before" } else { "ROLLBACK TO before; RELEASE before" };
        session.batch_execute(end).await?;
        if let Err(error) = checked {
            tracing::warn!(%error, "failed to check the sessions; retrying");
        }
        sleep(INTERVAL).await;
    }
}

/// Ends the sessions with too many locks, surplus sessions, and those that may let the queue of notifications grow.
async fn check(
    session: &Client,
    (terminate, capacity): (&Statement, i64),
    connections: &ConnectionGuard,
    queue: &mut NotifyQueue,
    metrics: &DatabaseMetrics,
) -> Result<(), Error> {
    let ended: i64 = session.query_one(terminate, &[&capacity]).await?.get(0);
    if ended > 0 {
        tracing::warn!(ended, "ended the sessions with too many locks");
    }
    let ended = connections.check(session).await?;
    if ended > 0 {
        tracing::warn!(ended, "ended surplus sessions of clients");
    }
    let Checked { usage, ended } = queue.check(session).await?;
    metrics.notification_queue.set(usage);
    if ended > 0 {
        tracing::warn!(usage, ended, "ended sessions with open transactions to shorten the notification queue");
    }
    Ok(())
}
