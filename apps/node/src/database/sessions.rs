//! The sessions of a database.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::error::SqlState;

use super::admin::{Admin, AdminConnection, quote_ident};

const DRAIN_INTERVAL: Duration = Duration::from_millis(100);

/// Ends the sessions in a database and the sessions of its logins in other databases, except those of the roles `keep`.
/// Returns the number of sessions that still existed.
pub async fn terminate(admin: &AdminConnection, database: &str, keep: &[String]) -> anyhow::Result<i64> {
    const TERMINATE: &str = "
        WITH seen AS MATERIALIZED (
            SELECT a.pid FROM pg_stat_activity a
            WHERE a.pid <> pg_backend_pid() AND (a.usename <> ALL ($2::text[])) IS NOT FALSE AND (a.datname = $1 OR a.usesysid IN (
                SELECT m.member FROM pg_auth_members m JOIN pg_authid o ON o.oid = m.roleid WHERE o.rolname = $1))
        )
        SELECT count(pg_terminate_backend(pid)) FROM seen";
    Ok(admin.query_one(TERMINATE, &[&database, &keep]).await?.get(0))
}

/// Ends the sessions of a database's logins that block a change of roles or databases. Postgres does not show which
/// session has changed a row, so each further `attempt` ends more of them: attempt 0 those with locks on the catalogs,
/// attempt 1 also those that have written, and attempt 2 all except dumps. Returns their number.
pub async fn terminate_holders(
    client: &AdminConnection,
    database: &str,
    roles: &[String],
    attempt: i32,
) -> anyhow::Result<i64> {
    const TERMINATE: &str = "
        WITH holders AS MATERIALIZED (
            SELECT a.pid FROM pg_stat_activity a
            WHERE a.pid <> pg_backend_pid()
                AND (a.usename = ANY ($2) OR a.usesysid IN (
                    SELECT m.member FROM pg_auth_members m JOIN pg_authid o ON o.oid = m.roleid WHERE o.rolname = $1))
                AND ($3 > 1 AND a.usename !~ '^dump_' OR $3 > 0 AND a.backend_xid IS NOT NULL OR a.pid IN (
                    SELECT l.pid FROM pg_locks l WHERE l.granted AND (
                        l.mode = 'RowExclusiveLock' AND l.relation = ANY (ARRAY['pg_authid', 'pg_database',
                            'pg_db_role_setting', 'pg_auth_members']::regclass[]::oid[])
                        OR l.locktype = 'object'
                            AND l.classid = ANY (ARRAY['pg_authid', 'pg_database']::regclass[]::oid[]))))
        )
        SELECT count(pg_terminate_backend(pid)) FROM holders";
    Ok(client.query_one(TERMINATE, &[&database, &roles, &attempt]).await?.get(0))
}

/// The limits on the transactions of tenants.
#[derive(Debug, Clone, Copy)]
pub struct TransactionLimits {
    /// The largest number of transaction ids that were assigned since the transaction began, or that the transaction
    /// prevents from being reused. A tenant can consume millions of ids in seconds.
    pub ids: i32,
    /// The limit on the ids for dumps and restores, which may take longer.
    pub dump_ids: i32,
    /// The longest time since the transaction began. It does not apply to dumps and restores.
    pub time: Duration,
    /// The largest age of the oldest transaction id of a database, and half that of its oldest multixact id. Above it,
    /// the sessions in the database end, except dumps and restores. Postgres freezes a database at 200 million
    /// transaction ids or 400 million multixact ids, but cannot freeze the temporary tables of other sessions, and waits
    /// for their locks. While a dump or a restore itself keeps Postgres from freezing the database, no session ends.
    pub oldest_id: i32,
    /// The longest time of a session in such a database.
    pub session_time: Duration,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self {
            ids: 50_000_000,
            dump_ids: 500_000_000,
            time: minutes(24 * 60),
            oldest_id: 250_000_000,
            session_time: minutes(5),
        }
    }
}

/// Ends the sessions of tenants that harm others: those whose transaction exceeds the limits, those in a database whose
/// transaction ids are not frozen, and those in the database of another project whose tenant has admitted them. Returns
/// the number of sessions.
///
/// # Errors
/// Returns an error if Postgres fails.
pub async fn terminate_harmful(client: &AdminConnection, limits: TransactionLimits) -> anyhow::Result<i64> {
    const TERMINATE: &str = "
        WITH harmful AS MATERIALIZED (
            SELECT a.pid FROM pg_stat_activity a JOIN pg_authid r ON r.oid = a.usesysid
                JOIN pg_database d ON d.oid = a.datid
            WHERE a.datname ~ '^(db|new)_' AND NOT r.rolsuper AND (
                greatest(age(a.backend_xid), age(a.backend_xmin)) >
                    CASE WHEN r.rolname ~ '^(dump|load)_' THEN $2::integer ELSE $1::integer END
                OR a.xact_start < clock_timestamp() - $3::float8 * interval '1 second' AND r.rolname !~ '^(dump|load)_'
                OR greatest(age(d.datfrozenxid), mxid_age(d.datminmxid) / 2) > $4::integer
                    AND a.backend_start < clock_timestamp() - $5::float8 * interval '1 second'
                    AND r.rolname !~ '^(dump|load)_' AND NOT EXISTS (SELECT FROM pg_stat_activity t
                        WHERE t.datid = a.datid AND t.usename ~ '^(dump|load)_' AND age(t.backend_xmin)::bigint
                            + current_setting('vacuum_freeze_min_age')::bigint > $4::integer)
                OR a.datname ~ '^db_[0-9a-z]{26}$' AND NOT EXISTS (SELECT FROM pg_auth_members m JOIN pg_authid o ON o.oid = m.roleid
                    WHERE m.member = r.oid AND o.rolname = a.datname)
                    AND r.rolname <> 'auth_' || substr(a.datname, 4))
        )
        SELECT count(pg_terminate_backend(pid)) FROM harmful";
    let TransactionLimits { ids, dump_ids, time, oldest_id, session_time } = limits;
    let (time, session_time) = (time.as_secs_f64(), session_time.as_secs_f64());
    Ok(client.query_one(TERMINATE, &[&ids, &dump_ids, &time, &oldest_id, &session_time]).await?.get(0))
}

/// Ends all sessions, and returns when the database has no session and admits no new one. The caller must revoke
/// `CONNECT` from all logins before; otherwise new sessions appear.
pub async fn drain(admin: &Admin, database: &str) -> anyhow::Result<()> {
    loop {
        let mut client = admin.connect().await?;
        if terminate(&client, database, &[]).await? == 0 && is_unused(&mut client, database).await? {
            return Ok(());
        }
        drop(client);
        sleep(DRAIN_INTERVAL).await;
    }
}

/// Returns whether a database has no session and admits none. Tries a rename and rolls it back, which is exact: a
/// session locks its database before it checks the privilege `CONNECT`, but appears in `pg_stat_activity` only later.
async fn is_unused(client: &mut AdminConnection, database: &str) -> anyhow::Result<bool> {
    let (from, to) = (quote_ident(database), quote_ident(&format!("unused_{database}")));
    let transaction = client.transaction().await?;
    let renamed = transaction.batch_execute(&format!("ALTER DATABASE {from} RENAME TO {to}")).await;
    transaction.rollback().await?;
    if renamed.is_ok() && revoke_connect(client, database).await? {
        return Ok(false);
    }
    match renamed.as_ref().map_err(tokio_postgres::Error::code) {
        Ok(()) => Ok(true),
        Err(Some(code)) if *code == SqlState::OBJECT_IN_USE => Ok(false),
        Err(Some(code)) if *code == SqlState::INVALID_CATALOG_NAME => Ok(true),
        Err(_) => Ok(renamed.map(|()| false)?),
    }
}

/// Revokes the privilege `CONNECT` from all roles except the owner. A session of the owner may have granted it after
/// the logins were closed. Returns whether there was such a privilege.
async fn revoke_connect(client: &AdminConnection, database: &str) -> anyhow::Result<bool> {
    const GRANTEES: &str = "
        SELECT DISTINCT coalesce(quote_ident(g.rolname), 'PUBLIC')
        FROM pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
        LEFT JOIN pg_authid g ON g.oid = a.grantee
        WHERE d.datname = $1 AND a.privilege_type = 'CONNECT' AND a.grantee <> d.datdba";
    let grantees = client.query(GRANTEES, &[&database]).await?;
    for grantee in &grantees {
        let (database, grantee): (String, String) = (quote_ident(database), grantee.get(0));
        client.batch_execute(&format!("REVOKE ALL ON DATABASE {database} FROM {grantee} CASCADE")).await?;
    }
    Ok(!grantees.is_empty())
}
