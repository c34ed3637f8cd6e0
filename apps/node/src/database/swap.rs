//! The steps that cannot be undone: a database is replaced by the prepared one, or removed. Each step is one
//! transaction in `svc_node`, which also updates the node's tables. The previous database becomes a tombstone.

use anyhow::Context as _;
use tokio_postgres::Transaction;

use super::admin::{AdminConnection, quote_ident};
use super::create::exists;
use super::names::{self, Names};
use crate::random;

/// The days for which a tombstone is kept.
const TOMBSTONE_DAYS: i32 = 7;
/// The number of a project's newest tombstones that are kept. Each uses the disk space of a database.
const MAX_TOMBSTONES: i64 = 2;

/// Replaces the database of a project with the one that was prepared for `cause`. Neither may have a session.
pub async fn replace(
    client: &mut AdminConnection,
    project: &str,
    names: &Names,
    cause: &str,
    recovered_from: Option<&str>,
) -> anyhow::Result<()> {
    const RECORD: &str = "
        UPDATE svc.databases SET prepared_operation = NULL, is_prepared = false,
            restored_operation = CASE WHEN $3::text IS NULL THEN $2 ELSE restored_operation END,
            recovered_from = coalesce($3, recovered_from)
        WHERE project = $1 AND prepared_operation = $2 AND is_prepared";
    let (current, prepared) = (names.database(), names::prepared(cause).context("the id is malformed")?);
    let is_missing = !exists(client, &current).await?;
    let transaction = client.transaction().await?;
    let recorded = transaction.execute(RECORD, &[&project, &cause, &recovered_from]).await?;
    anyhow::ensure!(recorded == 1, "the new database is not complete");
    if !is_missing {
        let tombstone = rename_to_tombstone(&transaction, project, &current).await?;
        copy_attributes(&transaction, &tombstone, &prepared).await?;
    }
    let (prepared, current) = (quote_ident(&prepared), quote_ident(&current));
    // Until now, the prepared database belonged to the superuser, so that tenant code could not drop it.
    let replace =
        format!("ALTER DATABASE {prepared} OWNER TO {current}; ALTER DATABASE {prepared} RENAME TO {current}");
    transaction.batch_execute(&replace).await?;
    Ok(transaction.commit().await?)
}

/// Removes the database of a project. It must not have a session.
pub async fn remove(client: &mut AdminConnection, project: &str, names: &Names) -> anyhow::Result<()> {
    let current = names.database();
    let is_missing = !exists(client, &current).await?;
    let transaction = client.transaction().await?;
    if !is_missing {
        rename_to_tombstone(&transaction, project, &current).await?;
    }
    transaction.execute("DELETE FROM svc.databases WHERE project = $1", &[&project]).await?;
    Ok(transaction.commit().await?)
}

/// Makes a tombstone of a database by renaming it. Returns the new name.
async fn rename_to_tombstone(transaction: &Transaction<'_>, project: &str, database: &str) -> anyhow::Result<String> {
    const RECORD: &str = "
        INSERT INTO svc.tombstones (name, project, owner, drop_at)
        VALUES ($1, $2, $3, now() + make_interval(days => $4))";
    const EXPIRE: &str = "
        UPDATE svc.tombstones SET drop_at = now()
        WHERE project = $1 AND drop_at > now() AND name NOT IN
            (SELECT name FROM svc.tombstones WHERE project = $1 ORDER BY drop_at DESC LIMIT $2)";
    let tombstone = format!("old_{}", random::id().simple());
    let (from, to) = (quote_ident(database), quote_ident(&tombstone));
    // The tombstone must not belong to its previous owner, who could drop it. The limit does not apply to superusers.
    let rename_to_tombstone = format!(
        "ALTER DATABASE {from} RENAME TO {to}; ALTER DATABASE {to} CONNECTION LIMIT 0;
         ALTER DATABASE {to} OWNER TO CURRENT_USER"
    );
    transaction.batch_execute(&rename_to_tombstone).await?;
    transaction.execute(RECORD, &[&tombstone, &project, &database, &TOMBSTONE_DAYS]).await?;
    transaction.execute(EXPIRE, &[&project, &MAX_TOMBSTONES]).await?;
    Ok(tombstone)
}

/// Copies the tenant's own settings of a database and the database's comment, which a dump does not contain.
async fn copy_attributes(transaction: &Transaction<'_>, from: &str, to: &str) -> anyhow::Result<()> {
    const SETTINGS: &str = "
        INSERT INTO pg_db_role_setting (setdatabase, setrole, setconfig)
        SELECT t.oid, s.setrole, s.setconfig
        FROM pg_database f JOIN pg_db_role_setting s ON s.setdatabase = f.oid AND s.setrole = 0, pg_database t
        WHERE f.datname = $1 AND t.datname = $2";
    const COMMENT: &str = "
        INSERT INTO pg_shdescription (objoid, classoid, description)
        SELECT t.oid, d.classoid, d.description
        FROM pg_database f
        JOIN pg_shdescription d ON d.objoid = f.oid AND d.classoid = 'pg_database'::regclass, pg_database t
        WHERE f.datname = $1 AND t.datname = $2";
    transaction.execute(SETTINGS, &[&from, &to]).await?;
    transaction.execute(COMMENT, &[&from, &to]).await?;
    Ok(())
}
