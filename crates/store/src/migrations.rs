//! The schema's history, and the one way it moves.
//!
//! Each migration is a folder of `migrations/` with `up.sql` and `down.sql`, compiled in by the build script, so a binary
//! needs no source tree. The baseline is one folder for each context; what a later release changes is a folder after it.
//!
//! A file runs in one transaction with its line in the books. One that does something `CONCURRENTLY`, which Postgres
//! refuses there, holds that statement and no other.
//!
//! The books are kept in `public.__diesel_schema_migrations`, as diesel's own tools keep them.

use std::time::{Duration, Instant};

use diesel::QueryableByName;
use diesel::sql_types::{Bool, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use kernel::Secret;

use crate::connect::Connector;
use crate::{Config, InvalidUrl};

/// One step of the schema and its way back.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// The folder's name: `<version>_<what>`.
    pub name: &'static str,
    /// What `up.sql` holds.
    pub up: &'static str,
    /// What `down.sql` holds.
    pub down: &'static str,
}

impl Migration {
    /// What the books know it by: the digits before the first underscore.
    pub fn version(&self) -> &'static str {
        self.name.split('_').next().unwrap_or(self.name)
    }
}

/// Every migration that this binary knows, oldest first: the folders in `migrations/`.
pub const ALL: &[Migration] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Why the schema did not move, or is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file was refused by Postgres. What it had done is undone; migrations before it stay.
    #[error("migrations/{file} failed, nothing of it is left: {source}")]
    Failed {
        /// `<name>/up.sql` or `<name>/down.sql`.
        file: String,
        /// What Postgres said.
        source: diesel::result::Error,
    },
    /// A file that runs outside a transaction was refused by Postgres, which may leave an invalid index.
    #[error("migrations/{file} failed; drop the invalid index that it may have left, then try again: {source}")]
    FailedAlone {
        /// `<name>/up.sql` or `<name>/down.sql`.
        file: String,
        /// What Postgres said.
        source: diesel::result::Error,
    },
    /// The database is behind this binary.
    #[error("pending: {}", .0.join(", "))]
    Pending(Vec<&'static str>),
    /// The database is ahead of this binary, by these versions.
    #[error("applied, but unknown to this binary: {}", .0.join(", "))]
    Unknown(Vec<String>),
    /// Somebody else has been migrating for longer than [`PATIENCE`].
    #[error("another migration of this database has been running for {} s", PATIENCE.as_secs())]
    Busy,
    /// The books could not be read or written.
    #[error(transparent)]
    Database(#[from] diesel::result::Error),
    /// The address is not usable.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// Nobody usable answers at the address.
    #[error(transparent)]
    Connection(#[from] diesel::ConnectionError),
}

/// How long a migration waits for another one to end.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Where a database stands, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Known and applied.
    pub applied: Vec<&'static Migration>,
    /// Known and not applied.
    pub pending: Vec<&'static Migration>,
    /// Applied, but unknown to this binary: the versions as the books hold them.
    pub unknown: Vec<String>,
}

/// Moves a database along a list of migrations.
#[derive(Debug, Clone, Copy)]
pub struct Migrator {
    /// The list, oldest first.
    pub migrations: &'static [Migration],
    /// How long one statement may wait for a lock on a table before its migration fails: a migration in the queue for
    /// a busy table makes everybody else queue behind it.
    pub lock_timeout: Duration,
    /// Answer what would be done and do nothing.
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
    /// Applies what is pending, oldest first, each in a transaction of its own. Answers what was applied.
    pub async fn up(&self, conn: &mut AsyncPgConnection) -> Result<Vec<&'static Migration>, Error> {
        self.go(conn, Direction::Up, usize::MAX).await
    }

    /// Reverts the last `count` applied migrations, newest first. Answers what was reverted. Refused when something
    /// unknown may have been built on them.
    pub async fn down(&self, conn: &mut AsyncPgConnection, count: usize) -> Result<Vec<&'static Migration>, Error> {
        self.go(conn, Direction::Down, count).await
    }

    /// Compares the list with the books.
    pub async fn status(&self, conn: &mut AsyncPgConnection) -> Result<Status, Error> {
        let mut unknown = applied(conn).await?;
        let mut status = Status::default();
        for migration in self.migrations {
            match unknown.iter().position(|version| version == migration.version()) {
                Some(at) => {
                    unknown.remove(at);
                    status.applied.push(migration);
                }
                None => status.pending.push(migration),
            }
        }
        Ok(Status { unknown, ..status })
    }

    /// Succeeds when the database is exactly where this binary expects it.
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

    async fn go(
        &self,
        conn: &mut AsyncPgConnection,
        direction: Direction,
        count: usize,
    ) -> Result<Vec<&'static Migration>, Error> {
        if self.dry_run {
            return self.plan(conn, direction, count).await;
        }
        lock(conn).await?;
        let moved = self.run(conn, direction, count).await;
        let unlock = format!("RESET lock_timeout; RESET statement_timeout; SELECT pg_advisory_unlock({LOCK})");
        conn.batch_execute(&unlock).await?;
        moved
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
        let prepare = format!("SET statement_timeout = 0; SET lock_timeout = {lock_timeout}; {CREATE_BOOKS}");
        conn.batch_execute(&prepare).await?;
        let plan = self.plan(conn, direction, count).await?;
        for migration in &plan {
            apply(conn, migration, direction).await?;
        }
        Ok(plan)
    }
}

/// One connection, for a process that has no pool: verified TLS where the address asks for it.
pub async fn connect(url: Secret) -> Result<AsyncPgConnection, Error> {
    let target = Config::new(url, "migrate").target()?;
    Ok(Connector::new(target)?.connect().await?)
}

/// The names of the migrations that this binary knows and the database lacks; what `/readyz` asks.
pub async fn pending(conn: &mut AsyncPgConnection) -> Result<Vec<&'static str>, Error> {
    Ok(names(&Migrator::default().status(conn).await?.pending))
}

fn names(migrations: &[&Migration]) -> Vec<&'static str> {
    migrations.iter().map(|migration| migration.name).collect()
}

// Named with its schema: once the schema of a context bears the name of the database's user, it comes first in the
// search path.
const CREATE_BOOKS: &str = "CREATE TABLE IF NOT EXISTS public.__diesel_schema_migrations \
    (version varchar(50) PRIMARY KEY NOT NULL, run_on timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP)";

// Chosen once, at random; every binary of every release takes the same.
const LOCK: i64 = 6_230_718_455_117;

#[derive(QueryableByName)]
struct Yes {
    #[diesel(sql_type = Bool)]
    yes: bool,
}

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Text)]
    version: String,
}

/// The versions in the books, oldest first; none when there are no books yet.
async fn applied(conn: &mut AsyncPgConnection) -> Result<Vec<String>, diesel::result::Error> {
    if !ask(conn, "SELECT to_regclass('public.__diesel_schema_migrations') IS NOT NULL AS yes").await? {
        return Ok(Vec::new());
    }
    let query = diesel::sql_query("SELECT version::text FROM public.__diesel_schema_migrations ORDER BY version");
    Ok(query.load::<Version>(conn).await?.into_iter().map(|row| row.version).collect())
}

/// Polls instead of waiting in the server: a statement that waits holds a snapshot, and `CREATE INDEX CONCURRENTLY` of
/// the migration it waits for would wait for that snapshot in turn.
async fn lock(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    let start = Instant::now();
    while !ask(conn, &format!("SELECT pg_try_advisory_lock({LOCK}) AS yes")).await? {
        if start.elapsed() > PATIENCE {
            return Err(Error::Busy);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn ask(conn: &mut AsyncPgConnection, query: &str) -> Result<bool, diesel::result::Error> {
    Ok(diesel::sql_query(query).get_result::<Yes>(conn).await?.yes)
}

/// One message of several statements is one transaction, so the file and its line in the books stand or fall together.
async fn apply(conn: &mut AsyncPgConnection, migration: &Migration, direction: Direction) -> Result<(), Error> {
    let version = migration.version();
    let (file, sql, books) = match direction {
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
    if is_alone(sql) {
        conn.batch_execute(sql).await.map_err(|source| Error::FailedAlone { file, source })?;
        return Ok(conn.batch_execute(&books).await?);
    }
    conn.batch_execute(&format!("{sql}\n;{books}")).await.map_err(|source| Error::Failed { file, source })
}

/// What Postgres does concurrently it does in no transaction: such a file is one statement.
fn is_alone(sql: &str) -> bool {
    sql.lines().any(|line| !line.trim_start().starts_with("--") && line.contains(" CONCURRENTLY "))
}
