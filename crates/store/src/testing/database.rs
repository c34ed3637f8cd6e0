//! A migrated database of its own for every test.
//!
//! Cloned from a template that is migrated once per cluster. `STRATEGY file_copy` because the cluster of `cargo xtask
//! test` syncs nothing: there the checkpoints it forces are free, and it takes half of what the default takes, or of
//! what running the migrations again would.

use std::process::Command;
use std::sync::LazyLock;

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Jsonb};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use kernel::{Digest, Digester, World};
use serde_json::Value;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::migrations::{self, Migrator};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Names the cluster: the address of a database in it that may be connected to while others are made.
pub const CLUSTER: &str = "SVC_TEST_DATABASE_URL";

/// A fresh database with the whole schema and no rows; dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    cluster: String,
    name: String,
}

impl TestDatabase {
    /// Makes one.
    ///
    /// # Panics
    /// When there is no cluster: a test that needs one has failed.
    #[expect(clippy::panic, reason = "called by tests only, which end like this")]
    pub async fn create() -> Self {
        match Self::try_create().await {
            Ok(database) => database,
            Err(error) => panic!("no test database: {error}"),
        }
    }

    /// Its address, for as many connections as the test likes.
    #[must_use]
    pub fn url(&self) -> String {
        in_cluster(&self.cluster, &self.name)
    }

    /// The rows of a statement, each as one JSON object: a look behind the service, on a connection of its own.
    ///
    /// # Panics
    /// When Postgres refuses the statement.
    pub async fn rows(&self, statement: &str) -> Vec<Value> {
        let query = diesel::sql_query(format!("SELECT to_jsonb(t) AS row FROM ({statement}) t"));
        let rows: Vec<Row> = answered(statement, query.load(&mut self.connect().await).await);
        rows.into_iter().map(|row| row.row).collect()
    }

    /// The one number that a statement answers.
    ///
    /// # Panics
    /// When Postgres refuses the statement.
    pub async fn number(&self, statement: &str) -> i64 {
        let query = diesel::sql_query(format!("SELECT ({statement})::bigint AS number"));
        let row: Number = answered(statement, query.get_result(&mut self.connect().await).await);
        row.number
    }

    /// Runs statements: a change behind the service.
    ///
    /// # Panics
    /// When Postgres refuses them.
    pub async fn run(&self, statements: &str) {
        answered(statements, self.connect().await.batch_execute(statements).await);
    }

    /// What an example of the crate under test prints of this database: `SVC_DATABASE_URL` names it.
    ///
    /// # Panics
    /// When the example fails, or was not built: `cargo test` without `--test` builds it.
    #[expect(clippy::panic, clippy::expect_used, reason = "called by tests only, which end like this")]
    #[must_use]
    pub fn example(&self, name: &str, arguments: &[&str]) -> String {
        // Cargo puts examples beside the folder that holds the tests.
        let test = std::env::current_exe().expect("a test that runs has a file");
        let example = test.ancestors().nth(2).unwrap_or(&test).join("examples").join(name);
        let output = Command::new(&example).args(arguments).env("SVC_DATABASE_URL", self.url()).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", example.display()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn connect(&self) -> AsyncPgConnection {
        answered("connect", AsyncPgConnection::establish(&self.url()).await)
    }

    #[expect(clippy::disallowed_methods, reason = "set by the test runner, not by a deployment")]
    async fn try_create() -> Result<Self> {
        let cluster = std::env::var(CLUSTER).map_err(|_| format!("{CLUSTER} is not set: run `cargo xtask test`"))?;
        let template = template(&cluster).await?;
        let name = format!("test_{}", World::system().id::<Uuid>().simple());
        execute(&cluster, &format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")).await?;
        Ok(Self { cluster, name })
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Jsonb)]
    row: Value,
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[expect(clippy::panic, reason = "called by tests only, which end like this")]
fn answered<T, E: std::fmt::Display>(statement: &str, answer: std::result::Result<T, E>) -> T {
    answer.unwrap_or_else(|error| panic!("{statement}: {error}"))
}

impl Drop for TestDatabase {
    /// Waits for the server, on a thread because the test's own runtime may be the one that is blocked here. What
    /// cannot be dropped goes with the cluster.
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        let cluster = self.cluster.clone();
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(execute(&cluster, &drop))
        });
        let _ = dropped.join();
    }
}

/// Each set of migrations has a template of its own, so that a cluster outlives a change of them.
static TEMPLATE: LazyLock<String> = LazyLock::new(|| format!("template_{:.16}", migrations_digest().hex()));

fn migrations_digest() -> Digest {
    let mut digester = Digester::default();
    for migration in migrations::ALL {
        digester.update(migration.up.as_bytes());
    }
    digester.finish()
}

/// The template's name, once it can be cloned. Other processes may be making it at the same moment.
async fn template(cluster: &str) -> Result<&'static str> {
    static READY: OnceCell<()> = OnceCell::const_new();
    READY.get_or_try_init(|| make_template(cluster)).await?;
    Ok(&TEMPLATE)
}

async fn make_template(cluster: &str) -> Result<()> {
    let template = TEMPLATE.as_str();
    let mut cluster_conn = AsyncPgConnection::establish(cluster).await?;
    cluster_conn.batch_execute("SELECT pg_advisory_lock(hashtext('store::testing'))").await?;
    let find = format!("SELECT FROM pg_database WHERE datname = '{template}'");
    if diesel::sql_query(find).execute(&mut cluster_conn).await? == 1 {
        return Ok(());
    }
    // It gets its name last: one that has it is complete, and nobody is connected to it, which cloning asks for.
    let unfinished = format!("{template}_new");
    cluster_conn.batch_execute(&format!("DROP DATABASE IF EXISTS {unfinished}")).await?;
    cluster_conn.batch_execute(&format!("CREATE DATABASE {unfinished}")).await?;
    Migrator::default().up(&mut AsyncPgConnection::establish(&in_cluster(cluster, &unfinished)).await?).await?;
    cluster_conn.batch_execute(&format!("ALTER DATABASE {unfinished} RENAME TO {template}")).await?;
    Ok(())
}

async fn execute(url: &str, statement: &str) -> Result<()> {
    let mut conn = AsyncPgConnection::establish(url).await?;
    Ok(conn.batch_execute(statement).await?)
}

/// The cluster's address with another database.
fn in_cluster(cluster: &str, database: &str) -> String {
    let (address, query) = cluster.split_once('?').map_or((cluster, String::new()), |(a, q)| (a, format!("?{q}")));
    let server = address.rsplit_once('/').map_or(address, |(server, _)| server);
    format!("{server}/{database}{query}")
}
