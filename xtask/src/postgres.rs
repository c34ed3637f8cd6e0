//! Private Postgres clusters of this checkout, reachable through a unix socket.
//!
//! There are three kinds. The development clusters are durable; if xtask is killed, the next xtask adopts the running
//! clusters. A test cluster starts empty in memory and is deleted afterwards; several can run concurrently. A benchmark
//! cluster is also deleted, but is on disk and durable, so that commits have realistic costs.
//!
//! A cluster with the databases of projects also listens on an address, for clients with a password.

mod binaries;
mod dev;
mod location;
mod packages;
mod server;
mod temporary;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use location::Account;
use server::Server;
pub use temporary::TemporaryFiles;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClusterKind {
    Dev,
    Test,
    Bench,
}

/// How a cluster is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Rolls back transactions and writes a checkpoint.
    Fast,
    /// Aborts without a checkpoint: the next start performs crash recovery.
    Immediate,
}

/// A running cluster. It is stopped on drop.
pub struct Cluster {
    kind: ClusterKind,
    bin: PathBuf,
    account: Option<Account>,
    /// The folder with `data`, `log` and `lock`.
    home: PathBuf,
    sockets: PathBuf,
    /// The address for clients with a password, in addition to the socket.
    listen: Option<SocketAddr>,
    server: Option<Server>,
    /// Distinguishes a test cluster in use from one that a killed run left behind.
    _lock: Option<File>,
}

/// The maximum wait until a cluster is ready, including crash recovery.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

impl Cluster {
    /// Creates a folder that the cluster can write to.
    pub fn private_folder(&self, path: &Path) -> Result<()> {
        location::private_folder(path, self.account)
    }

    /// Stops the cluster, like `pg_ctl stop`.
    pub fn stop(&mut self, mode: Stop) {
        let signal = match mode {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        };
        if let Some(server) = &mut self.server {
            server.stop(signal);
        }
        self.server = None;
    }

    /// Starts the cluster again after it has stopped.
    pub fn restart(&mut self) -> Result<()> {
        self.server = None;
        self.start_server()
    }

    /// Returns whether the cluster was started by another process.
    pub fn is_adopted(&self) -> bool {
        self.server.as_ref().is_some_and(Server::is_adopted)
    }

    /// Returns whether the cluster is running.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(Server::is_running)
    }

    /// Returns the folder with all files of the cluster.
    pub fn folder(&self) -> &Path {
        &self.home
    }

    /// Returns the path of the log file.
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// Returns the folder with the Postgres programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// Returns a folder that also contains the client programs `pg_dump`, `pg_restore` and `psql`, and these other
    /// programs. This may be another folder than that of the server, with programs of a later release.
    pub fn bin_with_clients(&self, others: &[&str]) -> Result<PathBuf> {
        binaries::find_clients(&self.bin, others, self.account)
    }

    /// Returns the folder of the socket, for programs that do not accept a URL.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Returns the URL of a database in the cluster.
    pub fn url(&self, database: &str) -> String {
        database_url(&self.sockets, self.port(), database)
    }

    fn start(
        kind: ClusterKind,
        bin: PathBuf,
        account: Option<Account>,
        home: PathBuf,
        listen: Option<SocketAddr>,
        lock: Option<File>,
    ) -> Result<Self> {
        let sockets = location::socket_folder(&home, account)?;
        let mut cluster = Self { kind, bin, account, home, sockets, listen, server: None, _lock: lock };
        cluster.initialize()?;
        cluster.start_server()?;
        Ok(cluster)
    }

    fn start_server(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.server.is_none() {
            ensure!(start.elapsed() < STARTUP_TIMEOUT, "Postgres was not ready in time:\n{}", self.log_tail());
            self.server = self.try_start(start)?;
        }
        Ok(())
    }

    fn port(&self) -> u16 {
        self.listen.map_or(location::PORT, |listen| listen.port())
    }

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// Creates the data folder under a temporary name, so that a killed initdb leaves no incomplete cluster behind.
    fn initialize(&self) -> Result<()> {
        let data = self.data();
        if data.exists() {
            let data_version = fs::read_to_string(data.join("PG_VERSION"))?.trim().to_owned();
            let version = binaries::major(&self.bin)?;
            let (data, bin) = (data.display(), self.bin.display());
            ensure!(
                data_version == version,
                "{data} belongs to Postgres {data_version}, but {bin} is version {version}: set PG_BIN to version \
                 {data_version}, or delete the data with --reset"
            );
            return Ok(());
        }
        let unfinished = self.home.join("data.new");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        let mut initdb = location::command(&self.bin.join("initdb"), self.account);
        initdb.arg("-D").arg(&unfinished);
        initdb.args([
            "-U",
            "svc",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ]);
        if self.kind == ClusterKind::Test {
            initdb.arg("--no-sync");
        }
        let output = initdb.output().with_context(|| format!("{}", self.bin.display()))?;
        ensure!(output.status.success(), "initdb failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
        fs::rename(unfinished, data)?;
        Ok(())
    }

    /// Adopts a running server or starts one. Returns `None` if another attempt may succeed.
    fn try_start(&self, start: Instant) -> Result<Option<Server>> {
        let find = || Server::find(&self.data(), &self.sockets);
        if let Some(mut running) = find() {
            if running.listens_on(self.listen) {
                return Ok(Some(running));
            }
            // The address has changed since xtask was killed.
            running.stop(Signal::INT);
        }
        let mut server = Server::child(self.spawn()?, &self.data());
        while server.is_running() {
            if find().is_some_and(|ready| ready.is_same(&server)) {
                return Ok(Some(server));
            }
            if start.elapsed() > STARTUP_TIMEOUT {
                server.stop(Signal::QUIT);
                return Ok(None);
            }
            sleep(Duration::from_millis(10));
        }
        // A killed server leaves files that disappear with its last process, so another attempt may succeed.
        let log = self.log_tail();
        let leftovers = log.contains("postmaster.pid") || log.contains("shared memory");
        ensure!(leftovers, "Postgres did not start:\n{log}");
        sleep(Duration::from_millis(200));
        Ok(None)
    }

    fn spawn(&self) -> Result<Child> {
        let log = File::create(self.log())?;
        let mut postgres = location::command(&self.bin.join("postgres"), self.account);
        postgres.arg("-D").arg(self.data()).arg("-k").arg(&self.sockets);
        let addresses = self.listen.map(|listen| listen.ip().to_string()).unwrap_or_default();
        postgres.arg("-p").arg(self.port().to_string()).arg(format!("--listen_addresses={addresses}"));
        postgres.arg("--unix_socket_permissions=0700");
        if self.kind == ClusterKind::Test {
            postgres.args(["--fsync=off", "--full_page_writes=off", "--synchronous_commit=off"]);
        }
        if self.kind != ClusterKind::Dev || self.listen.is_some() {
            postgres.arg("--max_connections=400");
        }
        if self.kind == ClusterKind::Bench {
            // A typical setting of a dedicated Postgres server.
            postgres.arg("--shared_buffers=2GB");
        }
        // A separate process group, so that Ctrl-C reaches only xtask and Postgres is stopped last.
        postgres.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        postgres.spawn().with_context(|| format!("{}", self.bin.display()))
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The data of temporary clusters is deleted, so they need no checkpoint.
        let signal = if self.kind == ClusterKind::Dev { Signal::INT } else { Signal::QUIT };
        if let Some(server) = &mut self.server {
            server.stop(signal);
        }
        if self.kind != ClusterKind::Dev {
            // The next temporary cluster removes the folder.
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

/// Returns the URL of a database in the cluster with this socket folder and port.
fn database_url(sockets: &Path, port: u16, database: &str) -> String {
    let encode = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let host: String = sockets.as_os_str().as_encoded_bytes().iter().map(encode).collect();
    format!("postgres://svc@{host}:{port}/{database}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use kernel::Secret;
    use packages::Registry;
    use store::migrations::{self, Migrator};

    use super::*;

    /// Starts a temporary cluster, migrates a database in it and returns the folder of its programs.
    async fn start(find: impl FnOnce(Option<Account>) -> Result<PathBuf>) -> PathBuf {
        let cluster = Cluster::start_temporary(ClusterKind::Test, None, find).unwrap();
        let mut connection = migrations::connect(Secret::new(cluster.url("postgres"))).await.unwrap();
        Migrator::default().up(&mut connection).await.unwrap();
        Migrator::default().check(&mut connection).await.unwrap();
        cluster.bin().to_owned()
    }

    #[tokio::test]
    async fn downloaded_postgres_starts_and_migrates() {
        let tools =
            [(Registry::PyPi, "python3", &["-m", "pip", "--version"][..]), (Registry::Npm, "npm", &["--version"])];
        let mut expected = None;
        for (registry, program, version) in tools {
            if Command::new(program).args(version).output().is_ok_and(|it| it.status.success()) {
                let bin = start(|account| registry.obtain(account)).await;
                expected = expected.or(Some(bin));
            } else {
                eprintln!("SKIPPED: {registry:?} needs {program} {}", version.join(" "));
            }
        }
        if let Some(expected) = expected {
            assert_eq!(start(binaries::obtain).await, expected);
        }
    }

    #[test]
    fn client_programs_are_not_older_than_the_server() {
        let account = Account::find().unwrap();
        for registry in Registry::ALL {
            // The other test reports which registries are unavailable.
            let Ok(server) = registry.obtain(account) else { continue };
            let Ok(clients) = binaries::find_clients(&server, &[], account) else { continue };
            let version = |program: &Path| {
                let output = location::command(program, account).arg("--version").output().unwrap();
                let text = String::from_utf8(output.stdout).unwrap();
                let version: Vec<u32> =
                    text.split_whitespace().nth(2).unwrap().split('.').map(|it| it.parse().unwrap()).collect();
                version
            };
            for client in ["psql", "pg_dump", "pg_restore"] {
                assert!(version(&clients.join(client)) >= version(&server.join("postgres")), "{registry:?}, {client}");
            }
        }
    }
}
