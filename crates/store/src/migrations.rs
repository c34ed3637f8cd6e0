//! Schema migrations.
//!
//! Each migration is a folder of `migrations/` with `up.sql` and `down.sql`. The build script compiles them in, so a
//! binary needs no source tree. The baseline is one folder per context; each later change of the schema is a new
//! folder.
//!
//! A file and its row in the migration history form one transaction. Two kinds of files run outside of a transaction,
//! and contain a single statement: one with `CONCURRENTLY`, which Postgres rejects in a transaction, and a `DO` block
//! that commits after each batch of rows, so that it never locks many of them. It must be possible to run such a block
//! again after a failure.
//!
//! The migration history is `public.__diesel_schema_migrations`, the table of diesel's own tools.

use std::time::{Duration, Instant};

use diesel::QueryableByName;
use diesel::sql_types::{Bool, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use kernel::Secret;

use crate::connect::Connector;
use crate::{Config, InvalidUrl};

/// A change of the schema, and its reversal.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// The folder's name: `<version>_<title>`.
    pub name: &'static str,
    /// The content of `up.sql`.
    pub up: &'static str,
    /// The content of `down.sql`.
    pub down: &'static str,
}

impl Migration {
    /// Returns the version in the migration history: the digits before the first underscore.
    pub fn version(&self) -> &'static str {
        self.name.split('_').next().unwrap_or(self.name)
    }
}

/// The migrations of this binary, oldest first: the folders in `migrations/`.
pub const ALL: &[Migration] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// An error of a migration, or of a check of the schema.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres rejected a file. Its changes are rolled back; earlier migrations stay applied.
    #[error("migrations/{file} failed and was rolled back: {source}")]
    Failed {
        /// `<name>/up.sql` or `<name>/down.sql`.
        file: String,
        /// The error from Postgres.
        source: diesel::result::Error,
    },
    /// Postgres rejected a file that runs outside a transaction. It may have left an invalid index, or applied some of
    /// its batches.
    #[error("migrations/{file} failed; drop the invalid index that it may have left, then try again: {source}")]
    FailedOutsideTransaction {
        /// `<name>/up.sql` or `<name>/down.sql`.
        file: String,
        /// The error from Postgres.
        source: diesel::result::Error,
    },
    /// The database lacks these migrations.
    #[error("pending: {}", .0.join(", "))]
    Pending(Vec<&'static str>),
    /// The database has these versions, which this binary does not know.
    #[error("applied, but unknown to this binary: {}", .0.join(", "))]
    Unknown(Vec<String>),
    /// Another process has been migrating the database for too long.
    #[error("another migration of this database has been running for {} s", ADVISORY_LOCK_TIMEOUT.as_secs())]
    Busy,
    /// The migration history could not be read or written.
    #[error(transparent)]
    Database(#[from] diesel::result::Error),
    /// The address is invalid.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] diesel::ConnectionError),
}

/// The timeout for another migration to finish.
pub const ADVISORY_LOCK_TIMEOUT: Duration = Duration::from_secs(300);

/// The migrations of a database, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Known and applied.
    pub applied: Vec<&'static Migration>,
    /// Known and not applied.
    pub pending: Vec<&'static Migration>,
    /// Applied, but unknown to this binary: their versions.
    pub unknown: Vec<String>,
}

/// Applies and reverts migrations.
#[derive(Debug, Clone, Copy)]
pub struct Migrator {
    /// The migrations, oldest first.
    pub migrations: &'static [Migration],
    /// The lock timeout of a statement. A migration that waits for a lock on a busy table blocks all later statements
    /// on it.
    pub lock_timeout: Duration,
    /// Whether to return the plan without changing anything.
    pub dry_run: bool,
}

impl Default for Migrator {
    fn default() -> Self {
        Self { migrations: ALL, lock_timeout: Duration::from_secs(5), dry_run: false }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Up,
    Down,
}

impl Migrator {
    /// Applies the pending migrations, oldest first, each in its own transaction. Returns the applied migrations.
    pub async fn up(&self, conn: &mut AsyncPgConnection) -> Result<Vec<&'static Migration>, Error> {
        self.migrate(conn, Direction::Up, usize::MAX).await
    }

    /// Reverts the last `count` applied migrations, newest first. Returns the reverted migrations. Fails if the
    /// database has unknown migrations, which may depend on them.
    pub async fn down(&self, conn: &mut AsyncPgConnection, count: usize) -> Result<Vec<&'static Migration>, Error> {
        self.migrate(conn, Direction::Down, count).await
    }

    /// Compares the migrations with the migration history.
    pub async fn status(&self, conn: &mut AsyncPgConnection) -> Result<Status, Error> {
        let mut unknown = applied(conn).await?;
        let mut status = Status::default();
        for migration in self.migrations {
            match unknown.iter().position(|version| version == migration.version()) {
                Some(index) => {
                    unknown.remove(index);
                    status.applied.push(migration);
                }
                None => status.pending.push(migration),
            }
        }
        Ok(Status { unknown, ..status })
    }

    /// Succeeds if the database has exactly the migrations of this binary.
    pub async fn check(&self, conn: &mut AsyncPgConnection) -> Result<(), Error> {
        let Status { pending, unknown, .. } = self.status(conn).await?;
        if !pending.is_empty() {
            return Err(Error::Pending(names(&pending)));
        }
        if !unknown.is_empty() {
            return Err(Error::Unknown(unknown));
        }
        Ok(())
    }

    async fn migrate(
        &self,
        conn: &mut AsyncPgConnection,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<&'static Migration>, Error> {
        if self.dry_run {
            return self.plan(conn, direction, count).await;
        }
        lock(conn).await?;
        let result = self.run(conn, direction, count).await;
        let unlock =
            format!("RESET lock_timeout; RESET statement_timeout; SELECT pg_advisory_unlock({ADVISORY_LOCK_KEY})");
        let unlocked = conn.batch_execute(&unlock).await;
        // The error of a migration takes precedence: it may be the reason why the unlock fails.
        let applied = result?;
        unlocked?;
        Ok(applied)
    }

    async fn plan(
        &self,
        conn: &mut AsyncPgConnection,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<&'static Migration>, Error> {
        let status = self.status(conn).await?;
        match direction {
            Direction::Up => Ok(status.pending.into_iter().take(count).collect()),
            Direction::Down if status.unknown.is_empty() => Ok(status.applied.into_iter().rev().take(count).collect()),
            Direction::Down => Err(Error::Unknown(status.unknown)),
        }
    }

    async fn run(
        &self,
        conn: &mut AsyncPgConnection,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<&'static Migration>, Error> {
        let lock_timeout = self.lock_timeout.as_millis();
        let prepare = format!("SET statement_timeout = 0; SET lock_timeout = {lock_timeout}; {CREATE_HISTORY}");
        conn.batch_execute(&prepare).await?;
        let plan = self.plan(conn, direction, count).await?;
        for migration in &plan {
            apply(conn, migration, direction).await?;
        }
        Ok(plan)
    }
}

/// Opens a connection for a process without a pool, with verified TLS if the address requires it.
pub async fn connect(url: Secret) -> Result<AsyncPgConnection, Error> {
    let target = Config::new(url, "migrate").parse_url()?;
    Ok(Connector::new(target)?.connect().await?)
}

/// Returns the names of the migrations that the database lacks, for `/readyz`.
pub async fn pending(conn: &mut AsyncPgConnection) -> Result<Vec<&'static str>, Error> {
    Ok(names(&Migrator::default().status(conn).await?.pending))
}

fn names(migrations: &[&Migration]) -> Vec<&'static str> {
    migrations.iter().map(|migration| migration.name).collect()
}

// Qualified with its schema: a schema with the name of the database user would come first in the search path.
const CREATE_HISTORY: &str = "CREATE TABLE IF NOT EXISTS public.__diesel_schema_migrations \
    (version varchar(50) PRIMARY KEY NOT NULL, run_on timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP)";

// The random key of the advisory lock, the same in every release.
const ADVISORY_LOCK_KEY: i64 = 6_230_718_455_117;

#[derive(QueryableByName)]
struct BoolRow {
    #[diesel(sql_type = Bool)]
    value: bool,
}

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Text)]
    version: String,
}

/// Returns the versions in the migration history, oldest first. Empty without a migration history.
async fn applied(conn: &mut AsyncPgConnection) -> Result<Vec<String>, diesel::result::Error> {
    if !query_bool(conn, "SELECT to_regclass('public.__diesel_schema_migrations') IS NOT NULL AS value").await? {
        return Ok(Vec::new());
    }
    let query = diesel::sql_query("SELECT version::text FROM public.__diesel_schema_migrations ORDER BY version");
    Ok(query.load::<Version>(conn).await?.into_iter().map(|row| row.version).collect())
}

/// Polls for the advisory lock instead of waiting on the server. A waiting statement holds a snapshot, for which
/// `CREATE INDEX CONCURRENTLY` in the other migration would wait in turn.
async fn lock(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    let start = Instant::now();
    while !query_bool(conn, &format!("SELECT pg_try_advisory_lock({ADVISORY_LOCK_KEY}) AS value")).await? {
        if start.elapsed() > ADVISORY_LOCK_TIMEOUT {
            return Err(Error::Busy);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn query_bool(conn: &mut AsyncPgConnection, query: &str) -> Result<bool, diesel::result::Error> {
    Ok(diesel::sql_query(query).get_result::<BoolRow>(conn).await?.value)
}

/// Sends the file and its row of the migration history in one message, which Postgres executes as one transaction.
async fn apply(conn: &mut AsyncPgConnection, migration: &Migration, direction: Direction) -> Result<(), Error> {
    let version = migration.version();
    let (file, sql, record) = match direction {
        Direction::Up => {
            ("up.sql", migration.up, format!("INSERT INTO public.__diesel_schema_migrations VALUES ('{version}')"))
        }
        Direction::Down => (
            "down.sql",
            migration.down,
            format!("DELETE FROM public.__diesel_schema_migrations WHERE version = '{version}'"),
        ),
    };
    let file = format!("{}/{file}", migration.name);
    if runs_outside_transaction(sql) {
        conn.batch_execute(sql).await.map_err(|source| Error::FailedOutsideTransaction { file, source })?;
        return Ok(conn.batch_execute(&record).await?);
    }
    conn.batch_execute(&format!("{sql}\n;{record}")).await.map_err(|source| Error::Failed { file, source })
}

/// Returns whether a file uses `CONCURRENTLY`, which Postgres rejects in a transaction, or commits its own batches.
fn runs_outside_transaction(sql: &str) -> bool {
    let is_outside = |line: &str| line.contains(" CONCURRENTLY ") || line.trim() == "COMMIT;";
    sql.lines().any(|line| !line.trim_start().starts_with("--") && is_outside(line))
}
