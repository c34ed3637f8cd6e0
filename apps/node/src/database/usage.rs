//! The usage of databases: their size and the number of their files.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::admin::AdminConnection;

/// The number of files above which sessions are read-only. A table needs at least one file, but only 2 kB of a catalog.
/// The number includes the files that Postgres removes at its next checkpoint, such as those of truncated tables.
const MAX_FILES: u64 = 100_000;
/// The number of files above which logins are refused.
const MAX_LOGIN_FILES: u64 = 2 * MAX_FILES;

/// The usage of one database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The size of all files.
    pub bytes: u64,
    pub files: u64,
}

impl Usage {
    /// Returns whether sessions must be read-only.
    pub const fn is_full(self, size_limit: u64) -> bool {
        self.bytes > size_limit || self.files > MAX_FILES
    }

    /// Returns whether logins must be refused regardless of the size.
    pub const fn refuses_logins(self) -> bool {
        self.files > MAX_LOGIN_FILES
    }
}

impl From<&Row> for Usage {
    fn from(row: &Row) -> Self {
        let number = |column: &str| u64::try_from(row.get::<_, i64>(column)).unwrap_or_default();
        Self { bytes: number("bytes"), files: number("files") }
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
            (SELECT count(*) FROM pg_ls_dir(format('base/%s', d.oid), true, false)) AS files
        FROM pg_database d WHERE d.datname = $1 OR ($1::text IS NULL AND d.datname ~ '^db_')";
    let rows = client.query(USAGE, &[&name]).await?;
    Ok(rows.iter().map(|row| (row.get("name"), row.into())).collect())
}
