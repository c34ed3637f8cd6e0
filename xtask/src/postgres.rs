//! A Postgres of this checkout's own, reachable through a unix socket only.
//!
//! Two kinds. The cluster for development is kept, survives a crash of anything, and one that an xtask left behind when
//! it was killed is adopted by the next. The cluster for tests starts empty in memory, is thrown away, and there may be
//! several at a time.

pub mod binaries;
mod place;

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::workspace;
use place::Account;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dev,
    Test,
}

/// A running cluster; stopped when dropped.
pub struct Cluster {
    kind: Kind,
    bin: PathBuf,
    account: Option<Account>,
    /// Holds `data`, `log` and `lock`.
    home: PathBuf,
    sockets: PathBuf,
    process: Option<Process>,
    /// Tells a test cluster in use from one that a killed run left behind.
    _lock: Option<File>,
}

enum Process {
    Child(Child),
    Adopted(Pid),
}

/// How long a cluster may take to become ready, crash recovery included.
const PATIENCE: Duration = Duration::from_secs(60);

impl Cluster {
    /// Starts the cluster for development, or takes over the one that is running. The caller sees to it that there is
    /// one caller at a time.
    pub fn dev() -> Result<Self> {
        let account = Account::find()?;
        let home = place::state(account)?.join("dev/pg");
        place::private_folder(&home, account)?;
        Self::start(Kind::Dev, account, home, None)
    }

    /// Starts an empty cluster for tests, in memory where there is room.
    pub fn test() -> Result<Self> {
        let account = Account::find()?;
        let state = place::state(account)?.join("test");
        fs::create_dir_all(&state)?;
        // Two that start at once would sweep each other before either has its lock.
        let turn = File::create(state.join("lock"))?;
        turn.lock()?;
        let prefix = format!("svc-test-{}-", workspace::fingerprint(&workspace::root()?));
        let memory = Path::new("/dev/shm");
        for parent in [memory, &state] {
            sweep(parent, &prefix, account)?;
        }
        let parent = if has_room(memory) { memory } else { &state };
        let home = parent.join(format!("{prefix}{}", std::process::id()));
        place::private_folder(&home, account)?;
        let lock = workspace::try_lock(&home.join("lock"))?;
        ensure!(lock.is_some(), "{} belongs to another process", home.display());
        Self::start(Kind::Test, account, home, lock)
    }

    /// Ends the cluster for development and removes it with all it holds.
    pub fn remove_dev() -> Result<()> {
        let account = Account::find()?;
        let home = place::state(account)?.join("dev/pg");
        if home.exists() {
            end_leftover(&home, account)?;
            fs::remove_dir_all(&home)?;
        }
        Ok(())
    }

    /// Whether it ran before this process began.
    pub fn is_adopted(&self) -> bool {
        matches!(self.process, Some(Process::Adopted(_)))
    }

    /// The programs it runs from.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        let encode = |byte: &u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        let host: String = self.sockets.as_os_str().as_encoded_bytes().iter().map(encode).collect();
        format!("postgres://svc@{host}/{database}")
    }

    fn start(kind: Kind, account: Option<Account>, home: PathBuf, lock: Option<File>) -> Result<Self> {
        let bin = binaries::find()?;
        let sockets = socket_folder(&home, account)?;
        let mut cluster = Self {
            kind,
            bin,
            account,
            home,
            sockets,
            process: None,
            _lock: lock,
        };
        cluster.initialise()?;
        let start = Instant::now();
        while cluster.process.is_none() {
            ensure!(
                start.elapsed() < PATIENCE,
                "Postgres was not ready in time:\n{}",
                cluster.log_end()
            );
            cluster.process = cluster.attempt(start)?;
        }
        Ok(cluster)
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
        let output = initdb.output().context("initdb")?;
        ensure!(
            output.status.success(),
            "initdb failed:\n{}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        fs::rename(unfinished, data)?;
        Ok(())
    }

    /// One try at having a server. `None`: worth another.
    fn attempt(&self, start: Instant) -> Result<Option<Process>> {
        if let Some(pid) = self.answering() {
            return Ok(Some(Process::Adopted(pid)));
        }
        let mut child = self.spawn()?;
        let own = Pid::from_child(&child);
        while start.elapsed() < PATIENCE {
            if self.answering() == Some(own) {
                return Ok(Some(Process::Child(child)));
            }
            if let Some(status) = child.try_wait()? {
                // What a killed server leaves behind goes away once its last process is gone.
                let log = self.log_end();
                let leftovers = log.contains("postmaster.pid") || log.contains("shared memory");
                ensure!(leftovers, "Postgres did not start ({status}):\n{log}");
                sleep(Duration::from_millis(200));
                return Ok(None);
            }
            sleep(Duration::from_millis(10));
        }
        stop(&mut Process::Child(child), Signal::QUIT);
        Ok(None)
    }

    fn spawn(&self) -> Result<Child> {
        let log = File::create(self.home.join("log"))?;
        let mut postgres = place::command(&self.bin.join("postgres"), self.account);
        postgres
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(&self.sockets)
            .args(["-p", PORT]);
        postgres.args(["-c", "listen_addresses=", "-c", "unix_socket_permissions=0700"]);
        if self.kind == Kind::Test {
            postgres.args([
                "-c",
                "fsync=off",
                "-c",
                "full_page_writes=off",
                "-c",
                "synchronous_commit=off",
            ]);
            postgres.args(["-c", "max_connections=400"]);
        }
        // A group of its own, so that Ctrl-C reaches xtask alone and Postgres is stopped last.
        postgres
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        postgres.spawn().context("postgres")
    }

    /// The server's process, once it says it is ready and answers.
    fn answering(&self) -> Option<Pid> {
        answering(&self.data(), &self.sockets)
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(8)..)
            .unwrap_or_default()
            .join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing of a test cluster is worth a checkpoint.
        let signal = if self.kind == Kind::Test {
            Signal::QUIT
        } else {
            Signal::INT
        };
        if let Some(mut process) = self.process.take() {
            stop(&mut process, signal);
        }
        if self.kind == Kind::Test {
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

const PORT: &str = "5432";

/// The folder itself, unless the socket's path in it would be longer than the 107 bytes that an address holds.
fn socket_folder(home: &Path, account: Option<Account>) -> Result<PathBuf> {
    if socket(home).as_os_str().len() <= 107 {
        return Ok(home.to_owned());
    }
    let short = std::env::temp_dir().join(format!("svc-{}", workspace::fingerprint(home)));
    place::private_folder(&short, account)?;
    Ok(short)
}

fn socket(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

/// A process id in a file may be anybody's by now: it counts only while somebody answers at the socket.
fn answering(data: &Path, sockets: &Path) -> Option<Pid> {
    let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let mut lines = file.lines();
    let pid = Pid::from_raw(lines.next()?.trim().parse().ok()?)?;
    let ready = lines.nth(6)?.trim() == "ready";
    (ready && UnixStream::connect(socket(sockets)).is_ok()).then_some(pid)
}

/// Asks a server to end and waits until it has.
fn stop(process: &mut Process, signal: Signal) {
    let pid = match process {
        Process::Child(child) => Pid::from_child(child),
        Process::Adopted(pid) => *pid,
    };
    let _ = kill_process(pid, signal);
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let ended = match process {
            Process::Child(child) => !matches!(child.try_wait(), Ok(None)),
            Process::Adopted(pid) => rustix::process::test_kill_process(*pid).is_err(),
        };
        if ended {
            return;
        }
        sleep(Duration::from_millis(10));
    }
}

/// Removes the test clusters of runs that were killed.
fn sweep(parent: &Path, prefix: &str, account: Option<Account>) -> Result<()> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Ok(());
    };
    for home in entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
    {
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
    if let Some(pid) = answering(&home.join("data"), &socket_folder(home, account)?) {
        stop(&mut Process::Adopted(pid), Signal::QUIT);
    }
    Ok(())
}

fn has_room(memory: &Path) -> bool {
    const ENOUGH: u64 = 2 << 30;
    rustix::fs::statvfs(memory).is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) >= ENOUGH)
}
