//! The removal of the objects and privileges of revoked roles.
//!
//! A role with objects or privileges cannot be dropped. Their removal needs a session in the database, whose startup a
//! tenant can delay, and locks, which a tenant or a backup can hold. Therefore it is not part of a reconciliation, for
//! which other databases wait. It is repeated until it succeeds. The role stays a member of the owner, so each sweep
//! finds it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::admin::quote_ident;
use super::converge::LOCK_TIMEOUT;
use super::logins::Logins;
use super::registry::Entry;
use super::{MAX_CONCURRENT_CHANGES, Shared};

/// The longest time of the removal in one database.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Removes the objects and privileges of these roles of projects. Returns false if a database failed.
pub async fn empty_roles(shared: &Shared, mut roles: BTreeMap<String, Vec<String>>) -> bool {
    let entries = shared.registry.entries().into_iter().filter(|entry| entry.logins != Logins::Closed);
    let entries: Vec<_> = entries.filter_map(|entry| Some((roles.remove(&entry.project)?, entry))).collect();
    let empty = |(roles, entry): (Vec<String>, Entry)| async move {
        let emptied = timeout(MAX_TIME, empty_roles_in(shared, &entry, &roles)).await;
        let emptied = emptied.map_err(anyhow::Error::from).flatten();
        if let Err(error) = &emptied {
            let (project, error) = (entry.project, format!("{error:#}"));
            tracing::info!(project, error, "failed to remove the objects of revoked roles; retrying");
        }
        emptied.is_ok()
    };
    let emptied: Vec<bool> = stream::iter(entries).map(empty).buffer_unordered(MAX_CONCURRENT_CHANGES).collect().await;
    !emptied.contains(&false)
}

/// Passes the objects of roles in a database to the owner of the database, and removes the privileges of the roles
/// there. The objects in a tombstone stay, so the role is dropped after the last tombstone.
async fn empty_roles_in(shared: &Shared, entry: &Entry, roles: &[String]) -> anyhow::Result<()> {
    const FIND: &str = "
        SELECT r.rolname::text FROM pg_authid r WHERE r.rolname = ANY ($1) AND EXISTS (
            SELECT FROM pg_shdepend s JOIN pg_database d ON d.oid = s.dbid
            WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid AND d.datname = $2)";
    let backups = &entry.credentials;
    let client = shared.admin.connect().await?;
    let roles = client.query(FIND, &[&roles, &backups.database]).await?;
    let roles: Vec<String> = roles.iter().map(|row| quote_ident(row.get(0))).collect();
    if roles.is_empty() {
        return Ok(());
    }
    // A superuser must not open a session in the database. The login of backups is a member of the owner and, unless a
    // tenant has revoked this, of the roles.
    let grant = format!("{LOCK_TIMEOUT}; GRANT {} TO {}", roles.join(", "), quote_ident(&backups.user));
    client.batch_execute(&grant).await?;
    drop(client);
    // New queries of a table wait behind this session while it waits for a lock.
    let options = "-c role=none -c search_path=pg_catalog -c lock_timeout=100ms -c statement_timeout=10s";
    let (session, owner) = (backups.connect_with(options).await?, quote_ident(&backups.role));
    let mut result = Ok(());
    for role in roles {
        // An object of another role can be available although one of this role is locked.
        result = empty_role(&session, &role, &owner).await.and(result);
    }
    Ok(result?)
}

/// Passes the objects of a role to the owner. Both names are quoted. The schemas come first, because the new owner of a
/// function needs the privilege CREATE on the schema of the function.
async fn empty_role(session: &Client, role: &str, owner: &str) -> Result<(), tokio_postgres::Error> {
    const PASS_SCHEMAS: &str = "
        SELECT coalesce(string_agg(format('ALTER SCHEMA %I OWNER TO %s; ', nspname, $2::text), ''), '')
        FROM pg_namespace WHERE nspowner = $1::text::regrole";
    let schemas: String = session.query_one(PASS_SCHEMAS, &[&role, &owner]).await?.try_get(0)?;
    session.batch_execute(&format!("{schemas}REASSIGN OWNED BY {role} TO {owner}; DROP OWNED BY {role}")).await
}
