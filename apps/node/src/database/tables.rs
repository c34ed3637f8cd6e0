//! The tables of the node in `svc_node`.
//!
//! The tables are in the same cluster as the databases of the projects, so that one transaction renames databases and
//! records it. A backup of the cluster's folder contains both.

use std::time::SystemTime;

use anyhow::Context as _;
use tokio_postgres::{Client, GenericClient, Row};

use super::admin::{DATABASE, quote_ident};
use super::backup;
use super::logins::max_login_bytes;
use crate::random;

const TABLES: &str = "
CREATE SCHEMA IF NOT EXISTS svc;
-- The databases of projects, from the decision to create one until its tombstone exists.
CREATE TABLE IF NOT EXISTS svc.databases (
    project text PRIMARY KEY,
    id text NOT NULL UNIQUE,
    epoch bigint NOT NULL,
    -- The last restore that was committed.
    restored_operation text,
    -- The restore whose new database exists, or is being created.
    prepared_operation text,
    -- The key of the generation from which that database is created.
    prepared_key text,
    -- Whether that database contains the whole generation.
    is_prepared boolean NOT NULL DEFAULT false,
    -- The generation from which a missing database was created.
    recovered_from text,
    -- Identifies the removal in progress: its final generation is made once.
    removal text,
    -- When its final generation first failed for a reason that may end.
    removal_failed_at timestamptz,
    -- The size in bytes above which the logins are refused. Null until the node has measured the database.
    max_login_bytes bigint,
    -- Whether the control plane withdrew the part, so that the database is not only missing in a full state.
    is_withdrawn boolean NOT NULL DEFAULT false,
    -- When a full state first did not list the database.
    unlisted_since timestamptz
);
ALTER TABLE svc.databases ADD COLUMN IF NOT EXISTS prepared_key text;
ALTER TABLE svc.databases ADD COLUMN IF NOT EXISTS max_login_bytes bigint;
ALTER TABLE svc.databases ADD COLUMN IF NOT EXISTS is_withdrawn boolean NOT NULL DEFAULT false;
ALTER TABLE svc.databases ADD COLUMN IF NOT EXISTS unlisted_since timestamptz;
ALTER TABLE svc.databases ADD COLUMN IF NOT EXISTS removal_failed_at timestamptz;
-- Databases that were replaced or removed, kept for an operator.
CREATE TABLE IF NOT EXISTS svc.tombstones (
    name text PRIMARY KEY,
    project text NOT NULL,
    owner text NOT NULL,
    drop_at timestamptz NOT NULL
);
";

/// The row of a project's database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseRow {
    pub project: String,
    pub id: String,
    pub epoch: i64,
    pub restored_operation: Option<String>,
    pub prepared_operation: Option<String>,
    pub prepared_key: Option<String>,
    pub is_prepared: bool,
    pub recovered_from: Option<String>,
    pub removal: Option<String>,
    pub max_login_bytes: Option<u64>,
    pub is_withdrawn: bool,
    pub is_unlisted: bool,
}

impl From<Row> for DatabaseRow {
    fn from(row: Row) -> Self {
        Self {
            project: row.get("project"),
            id: row.get("id"),
            epoch: row.get("epoch"),
            restored_operation: row.get("restored_operation"),
            prepared_operation: row.get("prepared_operation"),
            prepared_key: row.get("prepared_key"),
            is_prepared: row.get("is_prepared"),
            recovered_from: row.get("recovered_from"),
            removal: row.get("removal"),
            max_login_bytes: row.get::<_, Option<i64>>("max_login_bytes").map(i64::unsigned_abs),
            is_withdrawn: row.get("is_withdrawn"),
            is_unlisted: row.get::<_, Option<SystemTime>>("unlisted_since").is_some(),
        }
    }
}

/// Creates `svc_node`. Revokes the access of other roles to `svc_node` and to the databases that `initdb` created.
/// Idempotent.
pub async fn create_database(initial: &Client) -> anyhow::Result<()> {
    let superuser = initial.query_one("SELECT rolsuper FROM pg_roles WHERE rolname = current_user", &[]).await?;
    anyhow::ensure!(superuser.get::<_, bool>(0), "the user of SVC_NODE_DATABASE_URL must be a superuser");
    let prepared: i32 =
        initial.query_one("SELECT current_setting('max_prepared_transactions')::integer", &[]).await?.get(0);
    // A prepared transaction outlives its session, and can be ended only from its own database, which the superuser
    // never enters.
    anyhow::ensure!(
        prepared == 0,
        "set max_prepared_transactions = 0: a prepared transaction of a tenant has no limit"
    );
    let own = quote_ident(DATABASE);
    let exists = initial.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&DATABASE]).await?;
    if exists.is_none() {
        // Without `ALLOW_CONNECTIONS false`, the new database would admit every role until the next statement.
        let create = format!("CREATE DATABASE {own} TEMPLATE template0 ALLOW_CONNECTIONS false");
        initial.batch_execute(&create).await.context("failed to create svc_node")?;
    }
    for database in [DATABASE, "postgres", "template1"] {
        let revoke = format!("REVOKE ALL ON DATABASE {} FROM PUBLIC", quote_ident(database));
        if initial.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&database]).await?.is_some() {
            initial.batch_execute(&revoke).await?;
        }
    }
    Ok(initial.batch_execute(&format!("ALTER DATABASE {own} ALLOW_CONNECTIONS true")).await?)
}

/// Creates the tables. Idempotent.
pub async fn create(own: &Client) -> anyhow::Result<()> {
    own.batch_execute(TABLES).await.context("failed to create the tables of svc_node")?;
    own.batch_execute(backup::tables::TABLES).await.context("failed to create the tables of the backups")
}

/// Returns the row of a project, if it has one.
pub async fn find(client: &impl GenericClient, project: &str) -> anyhow::Result<Option<DatabaseRow>> {
    let row = client.query_opt("SELECT * FROM svc.databases WHERE project = $1", &[&project]).await?;
    Ok(row.map(Into::into))
}

/// Begins the removal of a database, or continues it. Returns the id of the removal.
pub async fn begin_removal(client: &impl GenericClient, project: &str) -> anyhow::Result<String> {
    const BEGIN: &str = "
        UPDATE svc.databases SET removal = coalesce(removal, $2) WHERE project = $1 RETURNING removal";
    Ok(client.query_one(BEGIN, &[&project, &random::id().to_string()]).await?.get(0))
}

/// Records that the final generation of a removal failed. Returns whether the first failure was more than a day ago.
pub async fn record_failed_seal(client: &impl GenericClient, project: &str) -> anyhow::Result<bool> {
    const RECORD: &str = "
        UPDATE svc.databases SET removal_failed_at = coalesce(removal_failed_at, now()) WHERE project = $1
        RETURNING removal_failed_at < now() - interval '24 hours'";
    Ok(client.query_one(RECORD, &[&project]).await?.get(0))
}

/// Records that the control plane withdrew the part of a database.
pub async fn withdraw(client: &impl GenericClient, project: &str) -> anyhow::Result<()> {
    const WITHDRAW: &str = "UPDATE svc.databases SET is_withdrawn = true WHERE project = $1 AND NOT is_withdrawn";
    client.execute(WITHDRAW, &[&project]).await?;
    Ok(())
}

/// Records that a full state does not list a database. Returns whether the database may be removed: its part was
/// withdrawn, its removal has begun, or it has been unlisted for a day by a plausible clock. The day is a precaution: a
/// control plane that was restored from an old backup, or the wrong control plane, does not list the database either.
pub async fn unlist(client: &impl GenericClient, project: &str, has_clock: bool) -> anyhow::Result<bool> {
    const UNLIST: &str = "
        UPDATE svc.databases SET unlisted_since = coalesce(unlisted_since, now()) WHERE project = $1
        RETURNING is_withdrawn OR removal IS NOT NULL OR ($2 AND unlisted_since < now() - interval '24 hours')";
    Ok(client.query_one(UNLIST, &[&project, &has_clock]).await?.get(0))
}

/// Returns the rows of all projects.
pub async fn all(client: &impl GenericClient) -> anyhow::Result<Vec<DatabaseRow>> {
    Ok(client.query("SELECT * FROM svc.databases", &[]).await?.into_iter().map(Into::into).collect())
}

/// Inserts the row of a project, or updates its epoch and ends its removal. Returns the row, which may be that of an
/// earlier database.
pub async fn upsert(client: &impl GenericClient, project: &str, id: &str, epoch: i64) -> anyhow::Result<DatabaseRow> {
    const UPSERT: &str = "
        INSERT INTO svc.databases AS d (project, id, epoch) VALUES ($1, $2, $3)
        ON CONFLICT (project) DO UPDATE SET
            epoch = CASE WHEN d.id = $2 THEN $3 ELSE d.epoch END,
            removal = CASE WHEN d.id <> $2 THEN d.removal END,
            removal_failed_at = CASE WHEN d.id <> $2 THEN d.removal_failed_at END,
            is_withdrawn = d.id <> $2, unlisted_since = NULL
        RETURNING *";
    if let Some(row) = find(client, project).await?
        && (row.id != id
            || row == DatabaseRow { epoch, removal: None, is_withdrawn: false, is_unlisted: false, ..row.clone() })
    {
        return Ok(row);
    }
    Ok(client.query_one(UPSERT, &[&project, &id, &epoch]).await?.into())
}

/// Records, for a limit, the size above which a database refuses its logins. Returns it. `size` is the measured size,
/// and `None` if the database does not exist.
pub async fn set_max_login_bytes(
    client: &impl GenericClient,
    row: &DatabaseRow,
    limit: u64,
    size: Option<u64>,
) -> anyhow::Result<u64> {
    const SET: &str = "UPDATE svc.databases SET max_login_bytes = $2 WHERE project = $1";
    let max = max_login_bytes(limit, size.unwrap_or_default(), row.max_login_bytes);
    if size.is_some() && row.max_login_bytes != Some(max) {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        client.execute(SET, &[&row.project, &max]).await?;
    }
    Ok(max)
}
