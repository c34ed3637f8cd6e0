//! A private Postgres cluster, for tests of a node: a node owns the whole cluster that holds the databases of projects.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{random_id, reserved_port};

/// The environment variables with the folder of the Postgres programs, and with the parent folder of private clusters.
/// That folder belongs to the account that Postgres runs as.
const PROGRAMS: &str = "SVC_TEST_PG_BIN";
const PARENT: &str = "SVC_TEST_PG_DIR";

/// The superuser of the cluster.
const SUPERUSER: &str = "postgres";
const PASSWORD: &str = "the superuser's password";

/// A running cluster, which accepts only connections over TCP with a password (SCRAM). Dropping this value deletes it.
#[derive(Debug)]
pub struct PrivatePostgres {
    programs: PathBuf,
    home: PathBuf,
    port: u16,
    /// `None` after `kill`.
    server: Option<Child>,
}

impl PrivatePostgres {
    /// Starts an empty cluster. Without the Postgres programs, prints that the test is skipped and returns `None`.
    ///
    /// # Panics
    /// Panics if the cluster does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let (Some(programs), Some(parent)) = (variable(PROGRAMS), variable(PARENT)) else {
            eprintln!("SKIPPED: no pg_dump; run cargo xtask test, which installs the programs of Postgres with pip");
            return None;
        };
        // Not the id of this process: another test process can have had the same one.
        let home = parent.join(random_id().to_string());
        let mut cluster = Self { programs, home, port: reserved_port(), server: None };
        create_home(&cluster.home);
        cluster.initialize();
        cluster.restart();
        Some(cluster)
    }

    /// Returns the URL of the superuser, for `SVC_NODE_DATABASE_URL`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{SUPERUSER}:{}@{}/postgres", PASSWORD.replace(' ', "%20"), self.address())
    }

    /// Returns host and port, for `SVC_NODE_DATABASE_ADDRESS`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the folder of the programs, for `SVC_NODE_PG_BIN`. It also contains `psql`, `pg_dump` and `pg_restore`.
    #[must_use]
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Restarts the server with a certificate and its key (PEM). The server still accepts plain text. If it was built
    /// without TLS, prints that the test is skipped and returns false.
    ///
    /// # Panics
    /// Panics if the files cannot be written, or the server does not start.
    pub fn enable_tls(&mut self, certificate: &str, key: &str) -> bool {
        let supports_tls = self.command("postgres").args(["-c", "ssl=on", "-C", "ssl"]).output().unwrap();
        if !supports_tls.status.success() {
            eprintln!("SKIPPED: this build of Postgres does not support TLS");
            return false;
        }
        let data = self.home.join("data");
        let owner = fs::metadata(&data).unwrap();
        for (name, content) in [("server.crt", certificate), ("server.key", key)] {
            let file = data.join(name);
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        let settings = data.join("postgresql.conf");
        let settings_before = fs::read_to_string(&settings).unwrap();
        fs::write(&settings, settings_before + "ssl = on\n").unwrap();
        self.kill();
        self.restart();
        true
    }

    /// Kills the server with SIGKILL, so that it writes no checkpoint. Committed transactions are kept.
    ///
    /// # Panics
    /// Panics if the server is not running.
    pub fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Starts the server again after `kill`, on the same port, and waits until it is ready.
    ///
    /// # Panics
    /// Panics if the server does not start within a minute.
    pub fn restart(&mut self) {
        let start = Instant::now();
        while !self.try_start() {
            assert!(start.elapsed() < Duration::from_secs(60), "Postgres did not start:\n{}", self.log());
            // The processes of a killed server need a moment to end.
            sleep(Duration::from_millis(100));
        }
    }

    /// Moves all databases to a new cluster with `pg_upgrade`, and starts the server again. The version stays the same,
    /// but the steps are those of a major upgrade.
    ///
    /// # Panics
    /// Panics if the server is not running, or if `pg_upgrade` fails.
    pub fn upgrade(&mut self) {
        let mut server = self.server.take().unwrap();
        // pg_upgrade requires a clean shutdown.
        kill_process(Pid::from_child(&server), Signal::INT).unwrap();
        server.wait().unwrap();
        let old = self.home.join("old");
        fs::rename(self.home.join("data"), &old).unwrap();
        self.initialize();
        let port = self.port.to_string();
        let mut upgrade = self.command("pg_upgrade");
        upgrade.arg("-d").arg(old).arg("-b").arg(&self.programs).arg("-B").arg(&self.programs);
        upgrade.args(["-U", SUPERUSER, "-p", &port, "-P", &port, "--socketdir=/tmp", "--no-sync"]);
        let output = upgrade.env("PGPASSWORD", PASSWORD).current_dir(&self.home).output().unwrap();
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "{stdout}{stderr}");
        self.restart();
    }

    /// Returns a shell that executes an operator's commands until the first one fails. The programs of Postgres are in
    /// its path, and connect as the superuser.
    #[must_use]
    pub fn shell(&self, commands: &str) -> Command {
        let script = format!("PATH='{}':$PATH\n{commands}", self.programs.display());
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &script]).envs([("PGUSER", SUPERUSER), ("PGPASSWORD", PASSWORD)]);
        shell.env("PGHOST", "127.0.0.1").env("PGPORT", self.port.to_string());
        shell
    }

    /// Returns the log of the server since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.join("log")).unwrap_or_default()
    }

    /// Creates the files of the cluster: a copy of an empty cluster, so that initdb runs once in each process.
    fn initialize(&self) {
        static EMPTY: OnceLock<PathBuf> = OnceLock::new();
        let empty = EMPTY.get_or_init(|| {
            let home = self.home.with_file_name(format!("{}-empty", random_id()));
            create_empty(&self.programs, &home);
            home
        });
        let copied = Command::new("cp").arg("-a").arg(empty.join("data")).arg(&self.home).status().unwrap();
        assert!(copied.success());
    }

    /// Starts the server. Returns whether it is ready; otherwise it has exited.
    fn try_start(&mut self) -> bool {
        let log = File::create(self.home.join("log")).unwrap();
        let mut postgres = self.command("postgres");
        postgres.args(["--fsync=off", "--full_page_writes=off", "--max_connections=400"]);
        postgres.args(["--listen_addresses=127.0.0.1", "--unix_socket_directories=", "-p", &self.port.to_string()]);
        postgres.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut server = postgres.spawn().unwrap();
        while server.try_wait().unwrap().is_none() {
            let state = fs::read_to_string(self.home.join("data/postmaster.pid")).unwrap_or_default();
            let mut lines = state.lines().map(str::trim);
            if lines.next() == Some(&server.id().to_string()) && lines.nth(6) == Some("ready") {
                self.server = Some(server);
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        false
    }

    fn command(&self, program: &str) -> Command {
        command(&self.programs.join(program), &self.home)
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Unlike SIGKILL, this ends all processes of the server and frees its shared memory.
            let _ = kill_process(Pid::from_child(&server), Signal::QUIT);
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Creates the folder of a cluster, which belongs to the owner of its parent.
fn create_home(home: &Path) {
    fs::create_dir(home).unwrap();
    fs::set_permissions(home, fs::Permissions::from_mode(0o700)).unwrap();
    chown_like_parent(home);
}

fn chown_like_parent(path: &Path) {
    let parent = fs::metadata(path.parent().unwrap()).unwrap();
    chown(path, Some(parent.uid()), Some(parent.gid())).unwrap();
}

/// Creates an empty cluster with initdb.
fn create_empty(programs: &Path, home: &Path) {
    create_home(home);
    let password = home.join("password");
    fs::write(&password, PASSWORD).unwrap();
    chown_like_parent(&password);
    let mut initdb = command(&programs.join("initdb"), home);
    initdb.args(["-U", SUPERUSER, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]);
    let output = initdb.arg("--pwfile").arg(password).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a command that runs a program of the server as the owner of the cluster, because Postgres refuses to run as
/// root.
fn command(program: &Path, home: &Path) -> Command {
    let owner = fs::metadata(home).unwrap();
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").current_dir("/").arg("-D").arg(home.join("data"));
    if rustix::process::geteuid().is_root() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    command
}

fn variable(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}
