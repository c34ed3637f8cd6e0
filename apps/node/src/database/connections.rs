//! Protects the connections of the Postgres server, which all databases share.
//!
//! The owner of a database can change its connection limit, and the node needs seconds to repair it. Many projects
//! together can also use all connections within their limits. Then the logins of `env.db`, of app sign-in and of backups
//! would fail, because they are not superusers. So surplus sessions of clients end: those of the login of
//! `DatabaseConnect` and of tokens.

use tokio_postgres::{Client, Error, Statement};

/// The connection limit of a database. Without it, a project could use up the connections of the others.
pub const MAX_CONNECTIONS: i32 = 60;

/// Ends surplus sessions of clients ($1: the largest number of sessions in a database; $2: the part of all connections
/// above which sessions end; $3: the number of sessions that a database keeps then).
const TERMINATE: &str = "
    WITH sessions AS MATERIALIZED (
        SELECT a.pid, a.datid, a.backend_start, r.rolname ~ '^(app|tok)_' AS is_client
        FROM pg_stat_get_activity(NULL) a JOIN pg_authid r ON r.oid = a.usesysid
        WHERE a.backend_type = 'client backend'
    ), numbered AS (
        SELECT pid, is_client,
            row_number() OVER (PARTITION BY datid ORDER BY is_client, backend_start, pid) AS number,
            row_number() OVER (PARTITION BY datid, is_client ORDER BY backend_start, pid) AS client_number,
            count(*) OVER () - $2::float8 * current_setting('max_connections')::bigint AS excess
        FROM sessions
    ), ordered AS (
        SELECT pid, number, client_number, excess, row_number() OVER (ORDER BY client_number DESC, pid) AS turn
        FROM numbered WHERE is_client
    )
    SELECT count(pg_terminate_backend(pid)) FROM ordered
    WHERE number > $1::bigint OR client_number > $3::bigint AND turn <= excess";

/// The limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// The largest number of sessions in a database. The newest sessions of clients above it end.
    pub database: i64,
    /// The part of `max_connections` that may be in use, from 0 to 1. Above it, the newest sessions of clients end in
    /// the databases with the most sessions of clients.
    pub used: f64,
    /// The number of sessions of clients that each database keeps even then.
    pub kept: i64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { database: i64::from(MAX_CONNECTIONS), used: 0.8, kept: 5 }
    }
}

/// Keeps the connections below the limits.
pub struct ConnectionGuard {
    terminate: Statement,
    limits: ConnectionLimits,
}

impl ConnectionGuard {
    /// Prepares the checks in a session of the superuser.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn prepare(client: &Client, limits: ConnectionLimits) -> Result<Self, Error> {
        Ok(Self { terminate: client.prepare(TERMINATE).await?, limits })
    }

    /// Ends the sessions above the limits. Returns their number.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn check(&self, client: &Client) -> Result<i64, Error> {
        let ConnectionLimits { database, used, kept } = self.limits;
        Ok(client.query_one(&self.terminate, &[&database, &used, &kept]).await?.get(0))
    }
}
