//! A migrated database for each test.
//!
//! The database is cloned from a template that is migrated once per cluster. Cloning with `STRATEGY file_copy` takes
//! half as long as the default strategy, or as running the migrations. The cluster of `cargo xtask test` runs without
//! fsync, so the checkpoints that this strategy forces are cheap.

use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use diesel::sql_types::{BigInt, Jsonb};
use diesel::{QueryResult, QueryableByName};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use kernel::{ClockRng, Digest, Digester};
use serde_json::Value;
use store::migrations::{self, Migrator};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::sessions::Sessions;
use crate::{PrivatePostgres, administration};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The environment variable with the URL of a database in the test cluster. This database must accept connections while
/// others are created.
pub const CLUSTER: &str = "SVC_TEST_DATABASE_URL";

/// The name of a database in a private cluster.
const IN_PRIVATE_CLUSTER: &str = "control_plane";

/// A database with the current schema and no rows. Dropping this value drops the database.
#[derive(Debug)]
pub struct TestDatabase {
    cluster: String,
    name: String,
    sessions: Sessions,
}

impl TestDatabase {
    /// Creates a database.
    ///
    /// # Panics
    /// Panics if there is no cluster.
    pub async fn create() -> Self {
        crate::enforce_log_policy();
        match Self::try_create().await {
            Ok(database) => database,
            Err(error) => panic!("no test database: {error}"),
        }
    }

    /// Creates a database in a private cluster.
    ///
    /// # Panics
    /// Panics if Postgres refuses it.
    pub async fn create_in(cluster: &PrivatePostgres) -> Self {
        crate::enforce_log_policy();
        let (cluster, name) = (cluster.url(), IN_PRIVATE_CLUSTER.to_owned());
        let mut session = expect_ok("connect", AsyncPgConnection::establish(&cluster).await);
        expect_ok("create", session.batch_execute(&format!("CREATE DATABASE {name}")).await);
        let database = Self::named(cluster, name);
        expect_ok("migrate", Migrator::default().up(&mut database.connect().await).await);
        database
    }

    /// Returns a copy of this database, to which no other session may be open.
    ///
    /// # Panics
    /// Panics if Postgres refuses it.
    pub async fn copy(&self) -> Self {
        self.sessions.close();
        expect_ok("copy", Self::clone_in(&self.cluster, &self.name).await)
    }

    /// Returns the database's URL.
    #[must_use]
    pub fn url(&self) -> String {
        in_cluster(&self.cluster, &self.name)
    }

    /// Returns the rows of a statement, each as one JSON object. Uses a separate session.
    ///
    /// # Panics
    /// Panics if Postgres refuses the statement.
    pub async fn rows(&self, statement: &str) -> Vec<Value> {
        let query = diesel::sql_query(format!("SELECT to_jsonb(t) AS row FROM ({statement}) t"));
        let rows: Vec<Row> = expect_ok(statement, self.in_session(async |session| query.load(session).await).await);
        rows.into_iter().map(|row| row.row).collect()
    }

    /// Returns the single number that a statement returns.
    ///
    /// # Panics
    /// Panics if Postgres refuses the statement.
    pub async fn number(&self, statement: &str) -> i64 {
        let query = diesel::sql_query(format!("SELECT ({statement})::bigint AS number"));
        let row: Number = expect_ok(statement, self.in_session(async |session| query.get_result(session).await).await);
        row.number
    }

    /// Runs statements in a separate session.
    ///
    /// # Panics
    /// Panics if Postgres refuses them.
    pub async fn run(&self, statements: &str) {
        expect_ok(statements, self.try_run(statements).await);
    }

    /// Runs statements in a separate session.
    ///
    /// # Errors
    /// Returns the error of Postgres.
    pub async fn try_run(&self, statements: &str) -> QueryResult<()> {
        self.in_session(async |session| session.batch_execute(statements).await).await
    }

    /// Ends the sessions of earlier statements, so that the statistics of Postgres contain their work. No other session
    /// without an application name may be open.
    ///
    /// # Panics
    /// Panics if a session does not end.
    pub async fn close_sessions(&self) {
        self.sessions.close();
        self.wait_for_end_of_sessions("").await;
    }

    /// Waits until no other session with this application name is open. Postgres updates its statistics when a session
    /// ends.
    ///
    /// # Panics
    /// Panics if a session does not end.
    pub async fn wait_for_end_of_sessions(&self, application_name: &str) {
        let open = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{application_name}' \
             AND datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        );
        let ended = async {
            while self.number(&open).await > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        expect_ok(&open, timeout(Duration::from_secs(60), ended).await);
    }

    /// Runs an example of the crate under test with `SVC_DATABASE_URL` set to this database, and returns its output.
    ///
    /// # Panics
    /// Panics if the example fails, or was not built: `cargo test` without `--test` builds it.
    #[must_use]
    pub fn example(&self, name: &str, arguments: &[&str]) -> String {
        // Cargo puts examples next to the folder with the test binaries.
        let test = std::env::current_exe().unwrap();
        let example = test.ancestors().nth(2).unwrap_or(&test).join("examples").join(name);
        let output = Command::new(&example).args(arguments).env("SVC_DATABASE_URL", self.url()).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", example.display()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn named(cluster: String, name: String) -> Self {
        Self { cluster, name, sessions: Sessions::default() }
    }

    /// Runs statements in a session, which later statements continue if these succeed.
    async fn in_session<T>(&self, run: impl AsyncFnOnce(&mut AsyncPgConnection) -> QueryResult<T>) -> QueryResult<T> {
        let mut session = self.connect().await;
        let result = run(&mut session).await?;
        self.sessions.keep(session).await;
        Ok(result)
    }

    async fn connect(&self) -> AsyncPgConnection {
        expect_ok("connect", self.sessions.open(&self.url()).await)
    }

    #[expect(clippy::disallowed_methods, reason = "set by the test runner, not by a deployment")]
    async fn try_create() -> Result<Self> {
        let cluster = std::env::var(CLUSTER).map_err(|_| format!("{CLUSTER} is not set: run `cargo xtask test`"))?;
        Self::clone_in(&cluster, template(&cluster).await?).await
    }

    async fn clone_in(cluster: &str, template: &str) -> Result<Self> {
        let name = format!("test_{}", ClockRng::system().id::<Uuid>().simple());
        let statement = format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy");
        administration::CREATE.run(cluster, statement).await?;
        Ok(Self::named(cluster.to_owned(), name))
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

fn expect_ok<T, E: std::fmt::Display>(statement: &str, answer: std::result::Result<T, E>) -> T {
    answer.unwrap_or_else(|error| panic!("{statement}: {error}"))
}

impl Drop for TestDatabase {
    /// Drops the database. The test does not wait for it, because Postgres waits until the connections to the database
    /// have ended. A database that is not dropped is removed together with the cluster, as are those of private clusters.
    fn drop(&mut self) {
        if self.name == IN_PRIVATE_CLUSTER {
            return;
        }
        let statement = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        drop(administration::DROP.submit(&self.cluster, statement));
    }
}

/// The template's name contains the digest of the migrations, so that a cluster can be reused after they change.
static TEMPLATE: LazyLock<String> = LazyLock::new(|| format!("template_{:.16}", migrations_digest().hex()));

fn migrations_digest() -> Digest {
    let mut digester = Digester::default();
    for migration in migrations::ALL {
        digester.update(migration.up.as_bytes());
    }
    digester.finish()
}

/// Returns the template's name as soon as the template can be cloned. Other processes may create it concurrently.
async fn template(cluster: &str) -> Result<&'static str> {
    static READY: OnceCell<()> = OnceCell::const_new();
    READY.get_or_try_init(|| make_template(cluster)).await?;
    Ok(&TEMPLATE)
}

async fn make_template(cluster: &str) -> Result<()> {
    let template = TEMPLATE.as_str();
    let mut cluster_conn = AsyncPgConnection::establish(cluster).await?;
    cluster_conn.batch_execute("SELECT pg_advisory_lock(hashtext('testkit'))").await?;
    let find = format!("SELECT FROM pg_database WHERE datname = '{template}'");
    if diesel::sql_query(find).execute(&mut cluster_conn).await? == 1 {
        return Ok(());
    }
    // The template is renamed last. A template with the final name is therefore complete, and has no connections, as
    // cloning requires.
    let unfinished = format!("{template}_new");
    cluster_conn.batch_execute(&format!("DROP DATABASE IF EXISTS {unfinished}")).await?;
    cluster_conn.batch_execute(&format!("CREATE DATABASE {unfinished}")).await?;
    let unfinished_url = in_cluster(cluster, &unfinished);
    Migrator::default().up(&mut AsyncPgConnection::establish(&unfinished_url).await?).await?;
    // A session writes the cache of the catalogs (`pg_internal.init`), which each clone then contains.
    drop(AsyncPgConnection::establish(&unfinished_url).await?);
    cluster_conn.batch_execute(&format!("ALTER DATABASE {unfinished} RENAME TO {template}")).await?;
    Ok(())
}

/// Returns the cluster's URL with another database.
fn in_cluster(cluster: &str, database: &str) -> String {
    let (address, query) = cluster.split_once('?').map_or((cluster, String::new()), |(a, q)| (a, format!("?{q}")));
    let server = address.rsplit_once('/').map_or(address, |(server, _)| server);
    format!("{server}/{database}{query}")
}
