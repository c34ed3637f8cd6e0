//! A node with its own Postgres cluster and a simulated control plane.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use postgres_protocol::password::scram_sha_256;
use protocol::{Database, DatabaseLogin, DatabaseReport, Verifier};
use serde_json::Value;
use testkit::{PrivatePostgres, reserved_address};
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};

use super::program::Program;
use crate::control_plane::ControlPlane;
use crate::running::{self, Dir, environment, until};
use crate::timeout::TIMEOUT;
use crate::visitor::Visitor;

/// The password of every login.
pub const PASSWORD: &str = "hush";

pub struct Kit {
    pub postgres: PrivatePostgres,
    pub core: ControlPlane,
    pub dir: Dir,
    pub node: Program,
    /// Whether a killed node is started again while a test waits.
    pub revives_node: bool,
    /// Postgres is killed and started again when the log of the node contains this text this number of times.
    pub postgres_trap: Option<(&'static str, usize)>,
    /// The number of starts of the node.
    pub starts: u32,
    /// More settings of the node.
    settings: Vec<(String, String)>,
    desired: BTreeMap<String, Database>,
    ids: u32,
}

/// A node that shares the Postgres of another one.
pub struct SecondNode {
    pub core: ControlPlane,
    pub program: Program,
    _dir: Dir,
}

impl Kit {
    /// Starts the node. Returns `None` without the programs of Postgres.
    pub async fn start() -> Option<Self> {
        Self::start_with(Vec::new()).await
    }

    /// Starts the node with more settings. Returns `None` without the programs of Postgres.
    pub async fn start_with(settings: Vec<(String, String)>) -> Option<Self> {
        let postgres = PrivatePostgres::start()?;
        let url = postgres.url();
        Some(Self::start_at(postgres, &url, settings).await)
    }

    /// Starts the node with metrics. Returns the address of the metrics, too.
    pub async fn start_with_metrics() -> Option<(Self, String)> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let address = reserved_address().to_string();
        let kit = Self::start_with(vec![("SVC_NODE_METRICS_LISTEN".to_owned(), address.clone())]).await?;
        Some((kit, address))
    }

    /// Starts the node with a server that supports TLS. The node cannot connect to the server until
    /// [`Self::start_node_at`].
    pub async fn start_with_tls(certificate: &sandbox::Certificate) -> Option<Self> {
        let mut postgres = PrivatePostgres::start()?;
        if !postgres.enable_tls(certificate.chain(), certificate.key()) {
            return None;
        }
        // There is no server at this address.
        Some(Self::start_at(postgres, "postgres://postgres@127.0.0.1:1/postgres", Vec::new()).await)
    }

    async fn start_at(postgres: PrivatePostgres, url: &str, settings: Vec<(String, String)>) -> Self {
        let (core, dir) = (ControlPlane::start().await, Dir::new());
        let node = program(&postgres, url, &core, &dir, ("info", &settings));
        let (revives_node, postgres_trap, desired) = (false, None, BTreeMap::new());
        Self { postgres, core, dir, node, revives_node, postgres_trap, starts: 1, settings, desired, ids: 0 }
    }

    /// Kills the node with SIGKILL and starts it again.
    pub fn restart_node(&mut self) {
        self.node.kill();
        self.restart_node_after_kill();
    }

    /// Starts the node after [`Program::kill`].
    pub fn restart_node_after_kill(&mut self) {
        self.starts += 1;
        self.start_node("info");
    }

    /// Starts the node with a log filter.
    pub fn start_node(&mut self, log: &str) {
        self.node = program(&self.postgres, &self.postgres.url(), &self.core, &self.dir, (log, &self.settings));
    }

    /// Starts the node with verified TLS to this host.
    pub fn start_node_at(&mut self, host: &str, root: &Path) {
        self.node.kill();
        let url = self.postgres.url().replace("127.0.0.1", host);
        let url = format!("{url}?sslmode=verify-full&sslrootcert={}", root.display());
        self.node = program(&self.postgres, &url, &self.core, &self.dir, ("info", &self.settings));
    }

    /// Starts another node with this Postgres, which has a control plane with one database.
    pub async fn second_node(&mut self, project: &str) -> SecondNode {
        let (core, dir) = (ControlPlane::start().await, Dir::new());
        let desired = database(self.id("dbs"));
        core.set_part(project, "database", serde_json::to_value(&desired).unwrap());
        let program = program(&self.postgres, &self.postgres.url(), &core, &dir, ("info", &[]));
        SecondNode { core, program, _dir: dir }
    }

    /// Enables a database, and waits until it is ready.
    pub async fn enable(&mut self, project: &str) {
        self.request(project);
        self.applied(project).await;
    }

    /// Enables a database without waiting.
    pub fn request(&mut self, project: &str) {
        let id = self.id("dbs");
        self.desired.insert(project.to_owned(), database(id));
        self.change(project, |_| ());
    }

    /// Publishes a change of the part, with a new revision.
    pub fn change(&mut self, project: &str, change: impl FnOnce(&mut Database)) {
        let database = self.desired.get_mut(project).unwrap();
        change(database);
        database.revision += 1;
        self.core.set_part(project, "database", serde_json::to_value(&*database).unwrap());
    }

    /// Withdraws the part.
    pub fn withdraw(&mut self, project: &str) {
        self.core.set_part(project, "database", Value::Null);
    }

    pub fn desired(&self, project: &str) -> &Database {
        &self.desired[project]
    }

    /// Adds a token, which never expires unless `expires_at` is given. Returns its role.
    pub fn add_token(&mut self, project: &str, expires_at: Option<String>) -> String {
        let user = self.id("tok");
        let login = DatabaseLogin { user: user.clone(), verifier: verifier(PASSWORD), expires_at };
        self.change(project, |database| database.tokens.push(login));
        user
    }

    /// Returns a new id.
    pub fn id(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}_01jd{:022}", self.ids)
    }

    pub fn report(&self, project: &str) -> Option<DatabaseReport> {
        let report = self.core.last_report_of(project, "database")?;
        Some(serde_json::from_value(report).unwrap())
    }

    /// Waits for a report that satisfies a condition.
    pub async fn reported(
        &mut self,
        project: &str,
        what: &str,
        is: impl Fn(&DatabaseReport) -> bool,
    ) -> DatabaseReport {
        let began = Instant::now();
        loop {
            self.spring_traps();
            if let Some(report) = self.report(project).filter(&is) {
                return report;
            }
            let waited = began.elapsed();
            assert!(waited < TIMEOUT, "no report with {what}: {:?}\n{}", self.report(project), self.node.log());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts the node again if it was killed and [`Self::revives_node`] is set. Kills and starts Postgres if its log
    /// line of [`Self::postgres_trap`] has appeared.
    pub fn spring_traps(&mut self) {
        if self.revives_node && !self.node.is_running() {
            self.restart_node_after_kill();
        }
        if let Some((text, count)) = self.postgres_trap
            && self.node.log().matches(text).count() >= count
        {
            self.postgres_trap = None;
            self.postgres.kill();
            self.postgres.restart();
        }
    }

    /// Returns a client of the front of the node.
    pub async fn visitor(&self) -> Visitor {
        let address = || {
            let log = self.node.log();
            let line = log.lines().find(|line| line.contains("\"listening\""))?;
            let line: Value = serde_json::from_str(line).ok()?;
            Some(line["fields"]["address"].as_str()?.parse().unwrap())
        };
        until("the front", || address().is_some()).await;
        Visitor::new(address().unwrap())
    }

    /// Waits until the node has applied the current revision and the database is ready.
    pub async fn applied(&mut self, project: &str) -> DatabaseReport {
        let Database { id, revision, .. } = self.desired[project].clone();
        let is = |report: &DatabaseReport| report.database == id && report.revision >= revision && report.ready;
        self.reported(project, "the revision", is).await
    }

    /// Returns the name of the database and of its owner.
    pub fn name(&self, project: &str) -> String {
        self.desired[project].id.replace("dbs_", "db_")
    }

    /// Returns the name of the login of `DatabaseConnect`.
    pub fn app(&self, project: &str) -> String {
        self.desired[project].id.replace("dbs_", "app_")
    }

    /// Opens a session of the login of `DatabaseConnect`.
    pub async fn session(&self, project: &str) -> Client {
        self.log_in(&self.app(project), PASSWORD, &self.name(project)).await.unwrap()
    }

    pub async fn log_in(&self, user: &str, password: &str, database: &str) -> Result<Client, tokio_postgres::Error> {
        let address = self.postgres.address();
        let (host, port) = address.split_once(':').unwrap();
        let mut config = tokio_postgres::Config::new();
        config.host(host).port(port.parse().unwrap()).user(user).password(password).dbname(database);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    /// Opens a session of the superuser in a database.
    pub async fn superuser(&self, database: &str) -> Client {
        let mut config: tokio_postgres::Config = self.postgres.url().parse().unwrap();
        let (client, connection) = config.dbname(database).connect(NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// Returns the output of `pg_dump` as the login of `DatabaseConnect`, without the lines that differ each time.
    pub fn dump(&self, project: &str, arguments: &[&str]) -> String {
        let address = self.postgres.address();
        let (host, port) = address.split_once(':').unwrap();
        let mut pg_dump = Command::new(self.postgres.programs().join("pg_dump"));
        pg_dump.env_clear().env("PGPASSWORD", PASSWORD).args(arguments);
        pg_dump.args(["-h", host, "-p", port, "-U", &self.app(project), &self.name(project)]);
        let output = pg_dump.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let is_stable = |line: &&str| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict");
        text.lines().filter(is_stable).collect::<Vec<_>>().join("\n")
    }
}

/// Waits until an asynchronous condition holds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    running::eventually(what, async || condition().await.then_some(())).await;
}

/// Returns a number that a statement returns.
pub async fn number(client: &Client, statement: &str) -> i64 {
    client.query_one(&format!("SELECT ({statement})::bigint"), &[]).await.unwrap().get(0)
}

/// Returns the names of the tombstones, which admit only superusers.
pub async fn tombstones(client: &Client) -> Vec<String> {
    const FIND: &str =
        "SELECT datname::text FROM pg_database JOIN svc.tombstones ON name = datname WHERE datconnlimit = 0";
    client.query(FIND, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

pub fn verifier(password: &str) -> Verifier {
    Verifier::new(scram_sha_256(password.as_bytes()))
}

pub fn database(id: String) -> Database {
    Database {
        revision: 0,
        id,
        verifier: Some(verifier(PASSWORD)),
        tokens: Vec::new(),
        size_bytes: 1 << 30,
        backup_days: 7,
        epoch: 1,
        source: None,
        operation: None,
        exports: Vec::new(),
        suspended: false,
    }
}

fn program(
    postgres: &PrivatePostgres,
    url: &str,
    core: &ControlPlane,
    dir: &Dir,
    (log, more): (&str, &[(String, String)]),
) -> Program {
    let backups = dir.path().join("backups");
    fs::create_dir_all(&backups).unwrap();
    let settings = [
        ("SVC_NODE_DATABASE_URL", url.to_owned()),
        ("SVC_NODE_DATABASE_ADDRESS", postgres.address()),
        ("SVC_NODE_DATABASE_SSLMODE", "disable".to_owned()),
        ("SVC_NODE_PG_BIN", postgres.programs().display().to_string()),
        ("SVC_NODE_BACKUPS", format!("file://{}", backups.display())),
        ("SVC_NODE_BACKUP_INTERVAL", "24h".to_owned()),
        ("SVC_NODE_LOG", log.to_owned()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    Program::start(environment(core, dir).into_iter().chain(settings).chain(more.iter().cloned()))
}
