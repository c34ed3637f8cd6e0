//! The backups of a node with its own Postgres cluster and store, without the rest of the node.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node::clock::ReferenceClock;
use node::database::admin::Admin;
use node::database::backup::config::BackupConfig;
use node::database::backup::{BackupError, BackupMetrics, Backups, FullState};
use node::database::config::{ProgramLimits, Programs};
use node::database::load::LoadTarget;
use node::database::logins::Logins;
use node::database::names::Names;
use node::database::registry::{Entry, Registry};
use node::database::server::{Credentials, Server};
use node::database::status::Statuses;
use node::observe::{Observation, Observer};
use objects::StoreConfig;
use prometheus::Registry as MetricsRegistry;
use protocol::{Database, GenerationKind, GenerationRef, GenerationReport, Report, Verifier};
use settings::Secret;
use testkit::{PrivatePostgres, write_program};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::running::Dir;
use crate::storage::store::TestStore;

const PASSWORD: &str = "hush";
/// A time that is longer than a test.
pub const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

pub struct Rig {
    pub postgres: PrivatePostgres,
    pub store: TestStore,
    pub registry: Registry,
    /// A session of the superuser in the database `svc_node`.
    pub admin: Client,
    pub backups: Arc<Backups>,
    pub reports: Arc<Mutex<Reports>>,
    /// The time of the control plane.
    pub clock: ReferenceClock,
    /// The client programs from the next start on.
    pub programs: Programs,
    pool: Admin,
    interval: Duration,
    server: Server,
    dir: Dir,
    tasks: JoinSet<()>,
}

/// The reports that a simulated control plane received.
#[derive(Default)]
pub struct Reports {
    pub received: Vec<Report>,
    /// Whether reports are lost before the control plane receives them.
    pub are_lost: bool,
}

/// A database with the login of the node.
pub struct Source {
    pub entry: Entry,
    /// A session of the tenant.
    pub session: Client,
}

impl Rig {
    /// Starts the backups. Returns `None` without the programs of Postgres.
    pub async fn start(store: TestStore, interval: Duration) -> Option<Self> {
        Self::start_with(store, interval, ProgramLimits::default()).await
    }

    /// Starts the backups with these limits. Returns `None` without the programs of Postgres.
    pub async fn start_with(store: TestStore, interval: Duration, limits: ProgramLimits) -> Option<Self> {
        let postgres = PrivatePostgres::start()?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (server, dir) = (Server::parse(&postgres.url()).unwrap(), Dir::new());
        let pool = Admin::new(server.clone());
        // The first connection prepares the cluster.
        drop(pool.connect().await.unwrap());
        let clock = ReferenceClock::default();
        clock.observe(node::clock::now());
        let (registry, reports) = (Registry::default(), Arc::default());
        let admin = connect(&url(&postgres, "svc_node"), "").await;
        let programs = programs(&postgres, limits);
        let parts = (interval, &programs, &clock);
        let (backups, tasks) = open(&server, Some(&store), parts, &dir, &registry, &reports);
        let rig = Self {
            postgres,
            store,
            registry,
            admin,
            backups,
            reports,
            clock,
            programs,
            pool,
            interval,
            server,
            dir,
            tasks,
        };
        rig.apply_state();
        Some(rig)
    }

    /// Ends all tasks, as if the node were killed, and starts again.
    pub async fn restart(&mut self) {
        self.restart_without_state().await;
        self.apply_state();
    }

    /// Restarts while the control plane is down.
    pub async fn restart_without_state(&mut self) {
        self.reopen(true).await;
    }

    /// Restarts without a store for backups.
    pub async fn restart_without_store(&mut self) {
        self.reopen(false).await;
        self.apply_state();
    }

    async fn reopen(&mut self, has_store: bool) {
        self.tasks.shutdown().await;
        let (server, store) = (&self.server, has_store.then_some(&self.store));
        (self.backups, self.tasks) =
            open(server, store, (self.interval, &self.programs, &self.clock), &self.dir, &self.registry, &self.reports);
    }

    /// Applies the full state of the control plane.
    pub fn apply_state(&self) {
        for Entry { project, desired, .. } in self.registry.entries() {
            self.backups.desire(&project, Some(&desired));
        }
        self.backups.complete_desired(FullState::default());
    }

    /// Opens a session of the superuser.
    pub async fn superuser(&self, database: &str) -> Client {
        connect(&url(&self.postgres, database), "").await
    }

    /// Connects again after a crash of Postgres.
    pub async fn reconnect(&mut self) {
        self.admin = connect(&url(&self.postgres, "svc_node"), "").await;
    }

    /// Creates a database for a project, and a session of its owner.
    pub async fn create(&self, project: &str) -> Source {
        let suffix = format!("{:0>26}", project.trim_start_matches("prj_"));
        let (owner, login) = (format!("db_{suffix}"), format!("dump_{suffix}"));
        for statement in [
            format!("CREATE ROLE {owner}"),
            format!("CREATE ROLE {login} LOGIN INHERIT BYPASSRLS PASSWORD '{PASSWORD}' IN ROLE {owner}"),
            format!("CREATE DATABASE {owner} OWNER {owner} TEMPLATE svc_template"),
            format!("INSERT INTO svc.databases (project, id, epoch) VALUES ('{project}', 'dbs_{suffix}', 1)"),
        ] {
            self.admin.batch_execute(&statement).await.unwrap();
        }
        let credentials = self.credentials(&owner, &owner, &login);
        let session = self.session(&credentials).await;
        let entry = Entry {
            project: project.to_owned(),
            desired: Arc::new(desired(&suffix)),
            credentials: Arc::new(credentials),
            logins: Logins::Open { read_only: false },
        };
        Source { entry, session }
    }

    /// Creates an empty database of the same owner, as a restore does.
    pub async fn create_empty(&self, source: &Source, name: &str) -> Credentials {
        let credentials = &source.entry.credentials;
        let owner = &credentials.role;
        self.admin.batch_execute(&format!("CREATE DATABASE {name} OWNER {owner} TEMPLATE svc_template")).await.unwrap();
        self.credentials(name, owner, &credentials.user)
    }

    /// Restores a generation into a database.
    pub async fn restore(
        &self,
        source: &Source,
        generation: &GenerationRef,
        database: &str,
    ) -> Result<(), BackupError> {
        let names = Names::new(&source.entry.desired.id).unwrap();
        let address = Arc::clone(&self.server.address);
        let target = LoadTarget::new(self.pool.clone(), address, names, database.to_owned(), 1 << 30);
        self.backups.restore(generation, &target, None).await
    }

    fn credentials(&self, database: &str, owner: &str, login: &str) -> Credentials {
        Credentials {
            address: Arc::clone(&self.server.address),
            database: database.to_owned(),
            user: login.to_owned(),
            password: Secret::new(PASSWORD.to_owned()),
            role: owner.to_owned(),
        }
    }

    /// Opens a session that acts as the owner.
    pub async fn session(&self, credentials: &Credentials) -> Client {
        let Credentials { database, user, role, .. } = credentials;
        let url = format!("postgres://{user}:{PASSWORD}@{}/{database}", self.postgres.address());
        connect(&url, role).await
    }

    /// Makes a generation of an operation.
    pub async fn seal(&self, source: &Source, operation: &str) -> GenerationReport {
        let sealed = self.try_seal(source, operation).await;
        sealed.unwrap().unwrap()
    }

    pub async fn try_seal(&self, source: &Source, operation: &str) -> Result<Option<GenerationReport>, BackupError> {
        let Entry { project, credentials, desired, .. } = &source.entry;
        let limits = (1, desired.size_bytes);
        self.backups.seal(project, limits, credentials, GenerationKind::PreRestore, operation).await
    }

    /// Returns the content of a database as SQL, with schema, data and privileges.
    pub fn sql(&self, database: &str) -> String {
        let output = self.run("pg_dump", database, &[], "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let sql = String::from_utf8(output.stdout).unwrap();
        // These lines contain a word that is random in each dump.
        let is_same = |line: &&str| !line.starts_with("\\restrict ") && !line.starts_with("\\unrestrict ");
        sql.lines().filter(is_same).collect::<Vec<_>>().join("\n")
    }

    /// Runs a program of Postgres as the superuser. Passes it an object of the store, unless `key` is empty.
    pub fn run(&self, program: &str, database: &str, arguments: &[&str], key: &str) -> Output {
        let mut program = Command::new(self.postgres.programs().join(program));
        program.arg(format!("--dbname={}", url(&self.postgres, database))).args(arguments);
        if !key.is_empty() {
            program.arg(self.store_file(key));
        }
        program.output().unwrap()
    }

    /// Returns the number that a query in `svc_node` returns.
    pub async fn count(&self, query: &str) -> i64 {
        self.admin.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Waits until a query in `svc_node` returns a number.
    pub async fn wait_for(&self, query: &str, expected: i64) {
        let began = std::time::Instant::now();
        loop {
            let count = self.count(query).await;
            if count == expected {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{query}: {count} instead of {expected}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the reports of a kind, without duplicates.
    pub fn reported(&self, kind: &str) -> BTreeSet<String> {
        let reports = self.reports.lock().unwrap();
        reports.received.iter().filter(|it| it.kind == kind).map(|it| it.report.to_string()).collect()
    }

    /// Replaces `pg_restore` by one that prints another version. The first call applies from the next start on. The
    /// program fails without `PGHOST`, which determines the version of Debian's wrapper scripts.
    pub fn change_version_of_pg_restore(&mut self, version: &str) {
        let (program, new) = (self.dir.path().join("pg_restore"), self.dir.path().join("pg_restore.new"));
        let restore = self.postgres.programs().join("pg_restore");
        let restore = restore.display();
        let script = format!(
            "#!/bin/sh\nif [ -z \"$PGHOST\" ]; then exit 1; fi\n\
             if [ \"$1\" = --version ]; then echo 'pg_restore (PostgreSQL) {version}'; exit; fi\n\
             exec '{restore}' \"$@\"\n"
        );
        write_program(&new, &script);
        fs::rename(new, &program).unwrap();
        self.programs.pg_restore = program;
    }

    pub fn store_file(&self, key: &str) -> PathBuf {
        self.store.folder(key)
    }
}

fn open(
    server: &Server,
    store: Option<&TestStore>,
    (interval, programs, clock): (Duration, &Programs, &ReferenceClock),
    dir: &Dir,
    registry: &Registry,
    reports: &Arc<Mutex<Reports>>,
) -> (Arc<Backups>, JoinSet<()>) {
    let (sender, observations) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(receive(observations, Arc::clone(reports)));
    let observer = Observer::new(sender);
    let statuses = Statuses::new(observer.clone());
    for Entry { project, desired, .. } in registry.entries() {
        statuses.apply(&project, &desired.id, |report| report.ready = true);
    }
    let spool = dir.path().join("restores");
    let config = store.map(|store| BackupConfig { store: store.config(), interval, spool });
    let metrics = BackupMetrics::new(&MetricsRegistry::new()).unwrap();
    let backups = Backups::open(
        config.as_ref(),
        programs,
        Admin::new(server.clone()),
        registry.clone(),
        statuses,
        observer,
        clock.clone(),
        metrics,
        &mut tasks,
    );
    (backups.unwrap(), tasks)
}

pub fn programs(postgres: &PrivatePostgres, limits: ProgramLimits) -> Programs {
    let program = |name| postgres.programs().join(name);
    let launcher = env!("CARGO_BIN_EXE_svc-node").into();
    Programs { pg_dump: program("pg_dump"), pg_restore: program("pg_restore"), launcher, limits }
}

/// Returns the URL of the superuser in a database.
fn url(postgres: &PrivatePostgres, database: &str) -> String {
    let url = postgres.url();
    format!("{}/{database}", url.rsplit_once('/').unwrap().0)
}

/// Receives reports like the control plane, and accepts them.
async fn receive(mut observations: mpsc::UnboundedReceiver<Observation>, reports: Arc<Mutex<Reports>>) {
    while let Some(Observation { report, accepted, .. }) = observations.recv().await {
        let mut reports = reports.lock().unwrap();
        if !reports.are_lost {
            reports.received.push(report);
            let _ = accepted.map(|accepted| accepted.send(()));
        }
    }
}

async fn connect(url: &str, role: &str) -> Client {
    let mut config: tokio_postgres::Config = url.parse().unwrap();
    if !role.is_empty() {
        config.options(format!("-c role={role}"));
    }
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

fn desired(suffix: &str) -> Database {
    Database {
        revision: 1,
        id: format!("dbs_{suffix}"),
        verifier: Some(Verifier::new(String::new())),
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

pub fn folder_of(config: &StoreConfig) -> PathBuf {
    let StoreConfig::Folder(folder) = config else { unreachable!("the store is a folder") };
    folder.clone()
}
