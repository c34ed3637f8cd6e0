//! Nameserver processes with the configurations in `deploy/dns/`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::reserved_dns_address;

use super::query::{Answer, query};

/// Returns the unpacked Debian packages. Returns `None` and prints a notice if `SVC_TEST_NAMESERVERS` is not set.
pub fn packages() -> Option<Packages> {
    let found = std::env::var_os("SVC_TEST_NAMESERVERS").map(|it| Packages(it.into()));
    if found.is_none() {
        eprintln!(
            "SKIPPED: SVC_TEST_NAMESERVERS is not set; cargo xtask test, as root, installs the nameservers and sets it"
        );
    }
    found
}

#[derive(Clone)]
pub struct Packages(PathBuf);

impl Packages {
    /// Creates a command for a program of the packages, with their libraries.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.0.join("usr").join(program));
        let libraries = self.0.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        command.env_clear().env("LD_LIBRARY_PATH", libraries).env("PATH", "/usr/bin:/bin");
        command
    }

    /// Runs a program, which must succeed, and returns its output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {arguments:?}: {text}");
        text
    }
}

/// A nameserver process.
pub struct Daemon {
    packages: Packages,
    pub folder: PathBuf,
    pub port: u16,
    pub program: &'static str,
    arguments: Vec<String>,
    child: Option<Child>,
}

/// The ports that replace the addresses in the configurations.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    pub primary: u16,
    pub knot: u16,
    pub bind: u16,
    pub nsd: u16,
}

impl Ports {
    pub fn free() -> Self {
        let [primary, knot, bind, nsd] = std::array::from_fn(|_| reserved_dns_address().port());
        Self { primary, knot, bind, nsd }
    }
}

/// The TSIG key of the configurations, in the format of `SVC_DNS_TSIG`.
pub const TSIG: &str = "svc:hmac-sha256:c3ZjIGV4YW1wbGUga2V5LCBub3QgZm9yIHVzZSEhISE=";

impl Daemon {
    pub fn knot(packages: &Packages, ports: Ports) -> Self {
        let Ports { primary, knot, bind, nsd } = ports;
        let (listen, upstream) = (format!("127.0.0.1@{knot}"), format!("127.0.0.1@{primary}"));
        let (to_bind, to_nsd) = (format!("127.0.0.1@{bind}"), format!("127.0.0.1@{nsd}"));
        let folder = folder("knot", knot);
        let here = folder.to_str().unwrap();
        let changes = [
            ("192.0.2.10@5300", upstream.as_str()),
            ("192.0.2.1@53", &listen),
            ("192.0.2.2@53", &to_bind),
            ("192.0.2.3@53", &to_nsd),
            ("/run/knot", here),
            ("/var/lib/knot", here),
            ("target: syslog", "target: stderr"),
        ];
        let file = configure(&folder, "knot.conf", &changes);
        Self::start(packages, folder, knot, "sbin/knotd", vec!["-c".to_owned(), file])
    }

    pub fn bind(packages: &Packages, ports: Ports) -> Self {
        let Ports { primary, knot, bind, .. } = ports;
        let folder = folder("bind", bind);
        let here = folder.to_str().unwrap();
        let (upstream, members) = (format!("127.0.0.1 port {primary}"), format!("127.0.0.1 port {knot}"));
        let listen = format!("listen-on port {bind} {{ 127.0.0.1; }}; pid-file none; session-keyfile none");
        let changes = [
            ("192.0.2.10 port 5300", upstream.as_str()),
            ("192.0.2.1 port 53", &members),
            ("listen-on port 53 { 192.0.2.2; }", &listen),
            ("/var/cache/bind", here),
        ];
        let file = configure(&folder, "named.conf", &changes);
        // Disable the control channel, because its default port is shared by all tests.
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}controls {{ }};\n")).unwrap();
        Self::start(packages, folder, bind, "sbin/named", ["-g", "-c", &file].map(str::to_owned).to_vec())
    }

    pub fn nsd(packages: &Packages, ports: Ports) -> Self {
        let Ports { knot, nsd, .. } = ports;
        let folder = folder("nsd", nsd);
        let here = folder.to_str().unwrap();
        let (listen, upstream) = (format!("127.0.0.1@{nsd}"), format!("127.0.0.1@{knot}"));
        let changes = [
            ("192.0.2.1@53", upstream.as_str()),
            ("192.0.2.3@53", &listen),
            ("allow-notify: 192.0.2.1", "allow-notify: 127.0.0.1"),
            ("username: nsd", "username: \"\""),
            ("/var/lib/nsd", here),
            ("/run/nsd", here),
        ];
        let file = configure(&folder, "nsd.conf", &changes);
        Self::start(packages, folder, nsd, "sbin/nsd", ["-d", "-c", &file].map(str::to_owned).to_vec())
    }

    fn start(packages: &Packages, folder: PathBuf, port: u16, program: &'static str, arguments: Vec<String>) -> Self {
        let mut daemon = Self { packages: packages.clone(), folder, port, program, arguments, child: None };
        daemon.restart();
        daemon
    }

    pub fn restart(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = self.packages.command(self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Queries the nameserver.
    pub async fn query(&self, name: &str, kind: &str) -> Answer {
        query(self.port, name, kind).await
    }

    /// Runs an `nsd-control` command, such as `addzone`.
    pub fn control(&self, command: &str, arguments: &[&str]) -> String {
        let file = self.folder.join("nsd.conf");
        let all = [&["-c", file.to_str().unwrap(), command], arguments].concat();
        self.packages.run("sbin/nsd-control", &all)
    }

    /// Returns the last 60 lines of the log.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.program, self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn folder(name: &str, port: u16) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("svc-{name}-{port}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes a configuration with replaced addresses and folders. Panics if it does not contain an original value.
fn configure(folder: &Path, name: &str, changes: &[(&str, &str)]) -> String {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/dns").join(name);
    let mut text = fs::read_to_string(original).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}
