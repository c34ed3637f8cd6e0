//! Protects the autovacuum workers, which all databases of the cluster share.
//!
//! The owner of a table can make its vacuum almost endless with the table's cost settings, and its analysis with a
//! function in an index. Such a worker is missing in the other databases, and its snapshot keeps Postgres from reusing
//! transaction ids. Neither the settings nor the functions are visible from outside the database. So workers end by
//! their time, which is long enough for the largest table. A vacuum that ended continues where it was: Postgres skips
//! the pages that are already frozen. Only the removal of dead rows since its last pass over the indexes is repeated.
//!
//! The end of a worker frees it for other databases only while no database is older than `autovacuum_freeze_max_age`:
//! otherwise Postgres starts all workers in the oldest database. Then `vacuum_failsafe_age` (projects.conf) limits the
//! time: above it, Postgres ignores the cost settings of a table. But a vacuum checks this only when it starts and every
//! 4 GiB, so the node ends those that began below this age.

use std::time::Duration;

use super::admin::AdminConnection;

/// The limits on autovacuum workers in the databases of projects.
#[derive(Debug, Clone, Copy)]
pub struct WorkerLimits {
    /// The largest number of transaction ids that were assigned since the snapshot of a worker.
    pub ids: i32,
    /// The longest time of the first worker of a database while all workers are busy, or while the age of the database is
    /// above the failsafe.
    pub time: Duration,
    /// The longest time of each further worker of the same database in the same cases.
    pub surplus_time: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self { ids: 200_000_000, time: minutes(120), surplus_time: minutes(30) }
    }
}

/// Ends the autovacuum workers above the limits. Returns their number. Postgres starts workers again in the database
/// that has waited longest, unless it must freeze a database: see above.
///
/// # Errors
/// Returns an error if Postgres fails.
pub async fn terminate_slow_workers(client: &AdminConnection, limits: WorkerLimits) -> anyhow::Result<i64> {
    const TERMINATE: &str = "
        WITH workers AS MATERIALIZED (
            SELECT pid, a.datname, backend_start, backend_xmin,
                count(*) OVER () >= current_setting('autovacuum_max_workers')::bigint
                OR age(datfrozenxid) > current_setting('vacuum_failsafe_age')::bigint
                OR mxid_age(datminmxid) > current_setting('vacuum_multixact_failsafe_age')::bigint AS is_limited,
                row_number() OVER (PARTITION BY datid ORDER BY backend_start, pid) AS number
            FROM pg_stat_activity a LEFT JOIN pg_database d ON d.oid = a.datid
            WHERE backend_type = 'autovacuum worker'
        )
        SELECT count(pg_terminate_backend(pid)) FROM workers
        WHERE datname ~ '^(db|new|old)_' AND (age(backend_xmin) > $1::integer
            OR is_limited AND backend_start < clock_timestamp()
                - CASE WHEN number = 1 THEN $2::float8 ELSE $3::float8 END * interval '1 second')";
    let WorkerLimits { ids, time, surplus_time } = limits;
    Ok(client.query_one(TERMINATE, &[&ids, &time.as_secs_f64(), &surplus_time.as_secs_f64()]).await?.get(0))
}
