//! The usage of databases: their size, their files and the age of their transaction ids.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::admin::AdminConnection;

/// The number of files above which sessions are read-only. A table needs at least one file, but only 2 kB of a catalog.
/// The number includes the files that Postgres removes at its next checkpoint, such as those of truncated tables.
const MAX_FILES: u64 = 100_000;
/// The number of files above which logins are refused.
const MAX_LOGIN_FILES: u64 = 2 * MAX_FILES;
/// The age of the oldest transaction id above which logins are refused. At an age of 2.1 billion, Postgres assigns no
/// ids in any database.
const MAX_LOGIN_AGE: u64 = 1_000_000_000;

/// The usage of one database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The size of all files.
    pub bytes: u64,
    pub files: u64,
    /// The number of transaction ids that were assigned after the oldest one that is not frozen, or the same number of
    /// multixact ids if it is larger.
    pub age: u64,
}

impl Usage {
    /// Returns whether sessions must be read-only.
    pub const fn is_full(self, size_limit: u64) -> bool {
        self.bytes > size_limit || self.files > MAX_FILES
    }

    /// Returns whether logins must be refused regardless of the size.
    pub const fn refuses_logins(self) -> bool {
        self.files > MAX_LOGIN_FILES || self.has_old_ids()
    }

    /// Returns whether the sessions of the database may prevent Postgres from reusing transaction ids.
    pub const fn has_old_ids(self) -> bool {
        self.age > MAX_LOGIN_AGE
    }
}

impl From<&Row> for Usage {
    fn from(row: &Row) -> Self {
        let number = |column: &str| u64::try_from(row.get::<_, i64>(column)).unwrap_or_default();
        Self { bytes: number("bytes"), files: number("files"), age: number("age") }
    }
}

/// Measures a database. Returns `None` if it does not exist.
pub async fn find(client: &AdminConnection, name: &str) -> anyhow::Result<Option<Usage>> {
    Ok(measure(client, Some(name)).await?.into_values().next())
}

/// Measures the databases of all projects. Returns the usage by the name of the database.
pub async fn all(client: &AdminConnection) -> anyhow::Result<BTreeMap<String, Usage>> {
    measure(client, None).await
}

/// Measures the databases of this name, or those of all projects.
async fn measure(client: &AdminConnection, name: Option<&str>) -> anyhow::Result<BTreeMap<String, Usage>> {
    // A database that is dropped at the same time has no size and no folder.
    const USAGE: &str = "
        SELECT d.datname::text AS name, coalesce(pg_database_size(d.oid), 0) AS bytes,
            (SELECT count(*) FROM pg_ls_dir(format('base/%s', d.oid), true, false)) AS files,
            greatest(age(d.datfrozenxid), mxid_age(d.datminmxid))::bigint AS age
        FROM pg_database d WHERE d.datname = $1 OR ($1::text IS NULL AND d.datname ~ '^db_')";
    let rows = client.query(USAGE, &[&name]).await?;
    Ok(rows.iter().map(|row| (row.get("name"), row.into())).collect())
}

/// Returns the largest age of all databases of the cluster, including those that are not of projects.
pub async fn oldest_id_age(client: &AdminConnection) -> anyhow::Result<i64> {
    const AGE: &str = "SELECT max(greatest(age(datfrozenxid), mxid_age(datminmxid)))::bigint FROM pg_database";
    Ok(client.query_one(AGE, &[]).await?.get(0))
}
