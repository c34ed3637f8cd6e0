//! A Postgres of this checkout's own, reachable through a unix socket only.
//!
//! Three kinds. The cluster for development is kept, survives a crash of anything, and one that an xtask left behind when
//! it was killed is adopted by the next. The cluster for tests starts empty in memory, is thrown away, and there may be
//! several at a time. The cluster for benches is thrown away too, but on disk, where a commit costs what it costs.

mod binaries;
mod packages;
mod place;
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
use place::Account;
use server::Server;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dev,
    Test,
    Bench,
}

/// How a cluster is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Transactions are rolled back, and what is in memory is written.
    Fast,
    /// As if the power failed: the next start recovers.
    Immediate,
}

/// A running cluster; stopped when dropped.
pub struct Cluster {
    kind: Kind,
    bin: PathBuf,
    account: Option<Account>,
    /// Holds `data`, `log` and `lock`.
    home: PathBuf,
    sockets: PathBuf,
    server: Option<Server>,
    /// Tells a test cluster in use from one that a killed run left behind.
    _lock: Option<File>,
}

/// How long a cluster may take to become ready, crash recovery included.
const PATIENCE: Duration = Duration::from_secs(60);

impl Cluster {
    /// Starts the cluster for development, or takes over the one that is running. The caller sees to it that there is
    /// one caller at a time.
    pub fn dev() -> Result<Self> {
        let account = Account::find()?;
        let home = place::state("dev", account)?.join("pg");
        place::private_folder(&home, account)?;
        Self::start(Kind::Dev, binaries::find(account)?, account, home, None)
    }

    /// The address of a database of the development cluster, which another process runs.
    pub fn dev_url(database: &str) -> Result<String> {
        let checkout = workspace::root()?;
        let account = Account::find()?;
        let sockets = if checkout.join(".svc/dev").is_dir() {
            running(&place::state("dev", account)?.join("pg"), account)?
        } else {
            None
        };
        let sockets = sockets.with_context(|| {
            let checkout = checkout.display();
            format!(
                "no development database is running for {checkout}: start `cargo xtask dev`, without SVC_DATABASE_URL"
            )
        })?;
        Ok(address(&sockets, database))
    }

    /// Starts an empty cluster for tests, in memory where there is room.
    pub fn test() -> Result<Self> {
        Self::thrown_away(Kind::Test, binaries::find)
    }

    /// Starts an empty cluster on disk that loses nothing it acknowledged, as Postgres comes.
    pub fn bench() -> Result<Self> {
        Self::thrown_away(Kind::Bench, binaries::find)
    }

    fn thrown_away(kind: Kind, find: impl FnOnce(Option<Account>) -> Result<PathBuf>) -> Result<Self> {
        let account = Account::find()?;
        let bin = find(account)?;
        let state = place::state("test", account)?;
        // Two that start at once would sweep each other before either has its lock.
        let turn = File::create(state.join("lock"))?;
        turn.lock()?;
        let prefix = format!("svc-test-{}-", workspace::fingerprint(&workspace::root()?));
        let memory = Path::new("/dev/shm");
        for parent in [memory, &state] {
            sweep(parent, &prefix, account)?;
        }
        let parent = if kind == Kind::Test && has_room(memory) { memory } else { &state };
        let home = parent.join(format!("{prefix}{}", std::process::id()));
        place::private_folder(&home, account)?;
        let lock = workspace::try_lock(&home.join("lock"))?;
        ensure!(lock.is_some(), "{} belongs to another process", home.display());
        Self::start(kind, bin, account, home, lock)
    }

    /// Ends the cluster for development and removes it with all it holds.
    pub fn remove_dev() -> Result<()> {
        let account = Account::find()?;
        let home = place::state("dev", account)?.join("pg");
        if home.exists() {
            end_leftover(&home, account)?;
            fs::remove_dir_all(&home)?;
        }
        Ok(())
    }

    /// Starts an empty cluster of this kind below a folder, where its files end with the file system that it lies on.
    pub fn bench_in(folder: &Path) -> Result<Self> {
        let account = Account::find()?;
        let home = folder.join("postgres");
        place::private_folder(&home, account)?;
        Self::start(Kind::Bench, binaries::find(account)?, account, home, None)
    }

    /// Makes a folder that it may write to.
    pub fn private_folder(&self, path: &Path) -> Result<()> {
        place::private_folder(path, self.account)
    }

    /// Stops it as `pg_ctl stop` does: in order, or at once.
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

    /// Starts it again once it has ended.
    pub fn start_again(&mut self) -> Result<()> {
        self.server = None;
        self.come_up()
    }

    /// Whether it ran before this process began.
    pub fn is_adopted(&self) -> bool {
        self.server.as_ref().is_some_and(Server::is_adopted)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(Server::is_running)
    }

    /// Where it writes what happens.
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// The programs it runs from.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The folder of its socket, for programs that take no address.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        address(&self.sockets, database)
    }

    fn start(kind: Kind, bin: PathBuf, account: Option<Account>, home: PathBuf, lock: Option<File>) -> Result<Self> {
        let sockets = place::socket_folder(&home, account)?;
        let mut cluster = Self { kind, bin, account, home, sockets, server: None, _lock: lock };
        cluster.initialise()?;
        cluster.come_up()?;
        Ok(cluster)
    }

    fn come_up(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.server.is_none() {
            ensure!(start.elapsed() < PATIENCE, "Postgres was not ready in time:\n{}", self.log_end());
            self.server = self.attempt(start)?;
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// Made under another name first: an initdb that is killed leaves no half cluster behind.
    fn initialise(&self) -> Result<()> {
        let data = self.data();
        if data.exists() {
            let made = fs::read_to_string(data.join("PG_VERSION"))?.trim().to_owned();
            let found = binaries::major(&self.bin)?;
            let (data, bin) = (data.display(), self.bin.display());
            ensure!(
                made == found,
                "{data} was made by Postgres {made}, and {bin} is {found}: set PG_BIN to a {made}, or start over with --reset"
            );
            return Ok(());
        }
        let unfinished = self.home.join("data.new");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        let mut initdb = place::command(&self.bin.join("initdb"), self.account);
        initdb.arg("-D").arg(&unfinished);
        initdb.args(["-U", "svc", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]);
        if self.kind == Kind::Test {
            initdb.arg("--no-sync");
        }
        let output = initdb.output().with_context(|| format!("{}", self.bin.display()))?;
        ensure!(output.status.success(), "initdb failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
        fs::rename(unfinished, data)?;
        Ok(())
    }

    /// One try at having a server. `None`: worth another.
    fn attempt(&self, start: Instant) -> Result<Option<Server>> {
        let find = || Server::find(&self.data(), &self.sockets);
        if let Some(running) = find() {
            return Ok(Some(running));
        }
        let mut server = Server::child(self.spawn()?, &self.data());
        while server.is_running() {
            if find().is_some_and(|ready| ready.is_same(&server)) {
                return Ok(Some(server));
            }
            if start.elapsed() > PATIENCE {
                server.stop(Signal::QUIT);
                return Ok(None);
            }
            sleep(Duration::from_millis(10));
        }
        // What a killed server leaves behind goes away once its last process is gone.
        let log = self.log_end();
        let leftovers = log.contains("postmaster.pid") || log.contains("shared memory");
        ensure!(leftovers, "Postgres did not start:\n{log}");
        sleep(Duration::from_millis(200));
        Ok(None)
    }

    fn spawn(&self) -> Result<Child> {
        let log = File::create(self.log())?;
        let mut postgres = place::command(&self.bin.join("postgres"), self.account);
        postgres.arg("-D").arg(self.data()).arg("-k").arg(&self.sockets);
        postgres.args(["-p", place::PORT, "--listen_addresses=", "--unix_socket_permissions=0700"]);
        if self.kind == Kind::Test {
            postgres.args(["--fsync=off", "--full_page_writes=off", "--synchronous_commit=off"]);
        }
        if self.kind != Kind::Dev {
            postgres.arg("--max_connections=400");
        }
        if self.kind == Kind::Bench {
            // As a machine is set up that is Postgres's.
            postgres.arg("--shared_buffers=2GB");
        }
        // A group of its own, so that Ctrl-C reaches xtask alone and Postgres is stopped last.
        postgres.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        postgres.spawn().with_context(|| format!("{}", self.bin.display()))
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing of a cluster that is thrown away is worth a checkpoint.
        let signal = if self.kind == Kind::Dev { Signal::INT } else { Signal::QUIT };
        if let Some(server) = &mut self.server {
            server.stop(signal);
        }
        if self.kind != Kind::Dev {
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

/// The address of a database of the cluster whose socket is in this folder.
fn address(sockets: &Path, database: &str) -> String {
    let encode = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let host: String = sockets.as_os_str().as_encoded_bytes().iter().map(encode).collect();
    format!("postgres://svc@{host}/{database}")
}

/// The folder of the socket of the cluster in `home`, if its server is ready.
fn running(home: &Path, account: Option<Account>) -> Result<Option<PathBuf>> {
    let data = home.join("data");
    if !data.is_dir() {
        return Ok(None);
    }
    let sockets = place::socket_folder(home, account)?;
    Ok(Server::find(&data, &sockets).map(|_| sockets))
}

/// Removes the test clusters of runs that were killed.
fn sweep(parent: &Path, prefix: &str, account: Option<Account>) -> Result<()> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Ok(());
    };
    for home in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        let home = home.path();
        let Some(_lock) = workspace::try_lock(&home.join("lock"))? else {
            continue;
        };
        end_leftover(&home, account)?;
        fs::remove_dir_all(&home)?;
    }
    Ok(())
}

/// Ends a server whose data nobody wants any more.
fn end_leftover(home: &Path, account: Option<Account>) -> Result<()> {
    if let Some(mut server) = Server::find(&home.join("data"), &place::socket_folder(home, account)?) {
        server.stop(Signal::QUIT);
    }
    Ok(())
}

fn has_room(memory: &Path) -> bool {
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

    /// Starts a server as `test` and `dev` do and migrates a database in it. Gives the folder of its programs.
    async fn start(find: impl FnOnce(Option<Account>) -> Result<PathBuf>) -> PathBuf {
        let cluster = Cluster::thrown_away(Kind::Test, find).unwrap();
        let mut connection = migrations::connect(Secret::new(cluster.url("postgres"))).await.unwrap();
        Migrator::default().up(&mut connection).await.unwrap();
        Migrator::default().check(&mut connection).await.unwrap();
        cluster.bin().to_owned()
    }

    #[tokio::test]
    async fn without_an_installed_postgres_one_is_obtained_and_starts() {
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
