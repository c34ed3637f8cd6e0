//! Private Postgres clusters of this checkout, reachable only through a unix socket.
//!
//! There are three kinds. The development cluster is durable; if xtask is killed, the next xtask adopts the running
//! cluster. A test cluster starts empty in memory and is deleted afterwards; several can run concurrently. A benchmark
//! cluster is also deleted, but is on disk and durable, so that commits have realistic costs.

mod binaries;
mod location;
mod packages;
mod server;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::workspace;
use location::Account;
use server::Server;

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
    server: Option<Server>,
    /// Distinguishes a test cluster in use from one that a killed run left behind.
    _lock: Option<File>,
}

/// The longest wait until a cluster is ready, including crash recovery.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

impl Cluster {
    /// Starts the development cluster, or adopts it if it is running. Callers must not run concurrently.
    pub fn dev() -> Result<Self> {
        let account = Account::find()?;
        let home = location::state_folder("dev", account)?.join("pg");
        location::private_folder(&home, account)?;
        Self::start(ClusterKind::Dev, binaries::find(account)?, account, home, None)
    }

    /// Returns the URL of a database in the development cluster, which another process runs.
    pub fn dev_url(database: &str) -> Result<String> {
        let checkout = workspace::root()?;
        let account = Account::find()?;
        let sockets = if checkout.join(".svc/dev").is_dir() {
            find_running(&location::state_folder("dev", account)?.join("pg"), account)?
        } else {
            None
        };
        let sockets = sockets.with_context(|| {
            let checkout = checkout.display();
            format!(
                "no development database is running for {checkout}: start `cargo xtask dev`, without SVC_DATABASE_URL"
            )
        })?;
        Ok(database_url(&sockets, database))
    }

    /// Starts an empty test cluster, in memory if there is enough space.
    pub fn test() -> Result<Self> {
        Self::start_temporary(ClusterKind::Test, binaries::find)
    }

    /// Starts an empty durable cluster on disk, with Postgres' default settings.
    pub fn bench() -> Result<Self> {
        Self::start_temporary(ClusterKind::Bench, binaries::find)
    }

    fn start_temporary(kind: ClusterKind, find: impl FnOnce(Option<Account>) -> Result<PathBuf>) -> Result<Self> {
        let account = Account::find()?;
        let bin = find(account)?;
        let state = location::state_folder("test", account)?;
        // Without this lock, a concurrent start could remove the new cluster before it is locked.
        let start_lock = File::create(state.join("lock"))?;
        start_lock.lock()?;
        let prefix = format!("svc-test-{}-", workspace::fingerprint(&workspace::root()?));
        let memory = Path::new("/dev/shm");
        for parent in [memory, &state] {
            remove_leftovers(parent, &prefix, account)?;
        }
        let parent = if kind == ClusterKind::Test && has_space(memory) { memory } else { &state };
        let home = parent.join(format!("{prefix}{}", std::process::id()));
        location::private_folder(&home, account)?;
        let lock = workspace::try_lock(&home.join("lock"))?;
        ensure!(lock.is_some(), "{} belongs to another process", home.display());
        Self::start(kind, bin, account, home, lock)
    }

    /// Stops the development cluster and deletes its data.
    pub fn remove_dev() -> Result<()> {
        let account = Account::find()?;
        let home = location::state_folder("dev", account)?.join("pg");
        if home.exists() {
            stop_leftover(&home, account)?;
            fs::remove_dir_all(&home)?;
        }
        Ok(())
    }

    /// Starts an empty benchmark cluster below a folder.
    pub fn bench_in(folder: &Path) -> Result<Self> {
        let account = Account::find()?;
        let home = folder.join("postgres");
        location::private_folder(&home, account)?;
        Self::start(ClusterKind::Bench, binaries::find(account)?, account, home, None)
    }

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

    /// Whether the cluster was started by another process.
    pub fn is_adopted(&self) -> bool {
        self.server.as_ref().is_some_and(Server::is_adopted)
    }

    /// Whether the cluster is running.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(Server::is_running)
    }

    /// The path of the log file.
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// The folder with the Postgres programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The folder of the socket, for programs that do not accept a URL.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// The URL of a database in the cluster.
    pub fn url(&self, database: &str) -> String {
        database_url(&self.sockets, database)
    }

    fn start(
        kind: ClusterKind,
        bin: PathBuf,
        account: Option<Account>,
        home: PathBuf,
        lock: Option<File>,
    ) -> Result<Self> {
        let sockets = location::socket_folder(&home, account)?;
        let mut cluster = Self { kind, bin, account, home, sockets, server: None, _lock: lock };
        cluster.initialise()?;
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

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// Creates the data folder under a temporary name, so that a killed initdb leaves no incomplete cluster behind.
    fn initialise(&self) -> Result<()> {
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
        initdb.args(["-U", "svc", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]);
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
        if let Some(running) = find() {
            return Ok(Some(running));
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
        // Leftovers of a killed server disappear with its last process.
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
        postgres.args(["-p", location::PORT, "--listen_addresses=", "--unix_socket_permissions=0700"]);
        if self.kind == ClusterKind::Test {
            postgres.args(["--fsync=off", "--full_page_writes=off", "--synchronous_commit=off"]);
        }
        if self.kind != ClusterKind::Dev {
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
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

/// Returns the URL of a database in the cluster with this socket folder.
fn database_url(sockets: &Path, database: &str) -> String {
    let encode = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let host: String = sockets.as_os_str().as_encoded_bytes().iter().map(encode).collect();
    format!("postgres://svc@{host}/{database}")
}

/// Returns the socket folder of the cluster in `home`, if its server is ready.
fn find_running(home: &Path, account: Option<Account>) -> Result<Option<PathBuf>> {
    let data = home.join("data");
    if !data.is_dir() {
        return Ok(None);
    }
    let sockets = location::socket_folder(home, account)?;
    Ok(Server::find(&data, &sockets).map(|_| sockets))
}

/// Stops and deletes the test clusters of killed runs.
fn remove_leftovers(parent: &Path, prefix: &str, account: Option<Account>) -> Result<()> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Ok(());
    };
    for home in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        let home = home.path();
        let Some(_lock) = workspace::try_lock(&home.join("lock"))? else {
            continue;
        };
        stop_leftover(&home, account)?;
        fs::remove_dir_all(&home)?;
    }
    Ok(())
}

/// Stops a server whose data is about to be deleted.
fn stop_leftover(home: &Path, account: Option<Account>) -> Result<()> {
    if let Some(mut server) = Server::find(&home.join("data"), &location::socket_folder(home, account)?) {
        server.stop(Signal::QUIT);
    }
    Ok(())
}

fn has_space(memory: &Path) -> bool {
    const ENOUGH: u64 = 2 << 30;
    rustix::fs::statvfs(memory).is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) >= ENOUGH)
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
        let cluster = Cluster::start_temporary(ClusterKind::Test, find).unwrap();
        let mut connection = migrations::connect(Secret::new(cluster.url("postgres"))).await.unwrap();
        Migrator::default().up(&mut connection).await.unwrap();
        Migrator::default().check(&mut connection).await.unwrap();
        cluster.bin().to_owned()
    }

    #[tokio::test]
    async fn downloaded_postgres_starts_and_migrates() {
        let tools =
            [(Registry::Npm, "npm", &["--version"][..]), (Registry::PyPi, "python3", &["-m", "pip", "--version"])];
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
}
