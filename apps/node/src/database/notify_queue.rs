//! Protects the queue of notifications, which all databases of the cluster share.
//!
//! Postgres keeps a notification (`NOTIFY`) on the disk until all sessions that listen have read it, also those in other
//! databases. A session reads only between its transactions. So one session that listens and leaves a transaction open
//! lets the queue grow. A client that does not read the notifications blocks its session in a transaction as well. When
//! the queue is full, at 8 GiB, each commit with a notification fails in every database. Postgres does not show which
//! sessions listen. So sessions with open transactions end until the queue is short again, first those that wait for
//! their client.

use tokio_postgres::{Client, Error, Statement};

/// The part of the queue above which transactions end.
pub const MAX_USAGE: f64 = 0.1;

/// Selects the used part of the queue. Postgres first discards the notifications that all sessions have read.
const USAGE: &str = "SELECT pg_notification_queue_usage()";

/// Ends sessions of tenants with open transactions ($1: their number). Dumps and restores do not listen. A session in a
/// younger transaction has read the notifications from before it.
const TERMINATE: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM (
        SELECT a.pid FROM pg_stat_get_activity(NULL) a JOIN pg_authid r ON r.oid = a.usesysid
        WHERE a.xact_start < clock_timestamp() - interval '2 seconds' AND NOT r.rolsuper AND r.rolname !~ '^(dump|load)_'
        ORDER BY a.wait_event_type IS DISTINCT FROM 'Client', a.xact_start LIMIT $1::bigint
    ) AS ended";

/// Keeps the queue below a limit.
pub struct NotifyQueue {
    usage: Statement,
    terminate: Statement,
    max_usage: f64,
    /// The used part of the queue at the previous check.
    previous: f64,
    /// The number of sessions to end if the queue exceeds the limit.
    next: i64,
}

/// The result of a check.
#[derive(Debug, Clone, Copy)]
pub struct Checked {
    /// The used part of the queue, before the check.
    pub usage: f64,
    /// The number of sessions that were ended.
    pub ended: i64,
}

impl NotifyQueue {
    /// Prepares the checks in a session of the superuser.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn prepare(client: &Client, max_usage: f64) -> Result<Self, Error> {
        let (usage, terminate) = (client.prepare(USAGE).await?, client.prepare(TERMINATE).await?);
        Ok(Self { usage, terminate, max_usage, previous: 0.0, next: 1 })
    }

    /// Ends a session if the queue exceeds the limit, and twice as many in each further check until it does not. Ends
    /// none while the queue becomes shorter.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn check(&mut self, client: &Client) -> Result<Checked, Error> {
        let usage: f64 = client.query_one(&self.usage, &[]).await?.get(0);
        let is_shorter = usage < std::mem::replace(&mut self.previous, usage);
        if usage <= self.max_usage {
            self.next = 1;
        }
        if usage <= self.max_usage || is_shorter {
            return Ok(Checked { usage, ended: 0 });
        }
        let ended = client.query_one(&self.terminate, &[&self.next]).await?.get(0);
        if ended > 0 {
            self.next = self.next.saturating_mul(2);
        }
        Ok(Checked { usage, ended })
    }
}
