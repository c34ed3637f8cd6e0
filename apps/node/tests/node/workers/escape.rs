//! Code that has escaped the JavaScript engine: a script that runs in place of `workerd`, with the same protections.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use node::worker::config::{Config, EgressConfig, UidRange};
use node::worker::launch::Launch;
use node::worker::protection::Protection;
use rustix::process::geteuid;

use super::unused_uids;
use crate::control_plane::ControlPlane;
use crate::running::Dir;

/// The functions of the attack. The node starts `perl serve` in place of `workerd serve`. The file `serve` contains
/// these functions, and the attempts that `script` adds.
const ATTACK: &str = r#"
use strict; use Socket; use POSIX ();
sub report { my ($name, $ok) = @_; print "$name ", $ok ? "ok" : int($!), "\n" }
sub tcp {
  my ($name, $address, $port) = @_;
  socket(my $socket, PF_INET, SOCK_STREAM, 0) or return report $name, 0;
  report $name, connect($socket, pack_sockaddr_in($port, inet_aton($address)));
}
sub unix {
  my ($name, $path) = @_;
  socket(my $socket, PF_UNIX, SOCK_STREAM, 0) or return report $name, 0;
  report $name, connect($socket, pack_sockaddr_un($path));
}
sub file { my ($name, $mode, $path) = @_; report $name, open(my $file, $mode, $path) }
sub child { my $pid = fork; POSIX::_exit(0) if defined $pid && !$pid; report $_[0], defined $pid }
sub call { my ($name, $number, @arguments) = @_; report $name, syscall($number, @arguments) >= 0 }
$| = 1;
"#;

/// The listeners and files that the attack tries to reach.
struct Targets {
    dir: Dir,
    uids: UidRange,
    core: ControlPlane,
    loopback: TcpListener,
    own: Option<TcpListener>,
    _world: UnixListener,
    _other: UnixListener,
}

impl Targets {
    async fn start() -> Self {
        let (dir, uids) = (Dir::new(), unused_uids());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // The targets include the socket of another worker, and a socket that every user may connect to, such as that
        // of Postgres.
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        let (other_socket, world_socket) = (other.join("http"), dir.path().join("world"));
        let (other_listener, world) =
            (UnixListener::bind(&other_socket).unwrap(), UnixListener::bind(&world_socket).unwrap());
        for socket in [&other_socket, &world_socket] {
            fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
        }
        fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
        if geteuid().is_root() {
            chown(&other, Some(uids.last), Some(uids.last)).unwrap();
        }
        let core = ControlPlane::start().await;
        let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { dir, uids, core, loopback, own: own_listener(), _world: world, _other: other_listener }
    }

    /// Runs the attack with these protections. Returns the results: `ok`, or the number of an error.
    async fn attack(&self, protections: &[Protection]) -> Vec<(String, String)> {
        let run = self.dir.path().join("run");
        let folder = run.join("attacker");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("serve"), self.script()).unwrap();
        let uid = geteuid().is_root().then_some(self.uids.first);
        chown(&folder, uid, uid).unwrap();
        // Only the node may enter the parent.
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        let config = Config {
            workerd: "/usr/bin/perl".into(),
            launcher: env!("CARGO_BIN_EXE_svc-node").into(),
            memory: 256 << 20,
            total_memory: 256 << 20,
            uids: self.uids,
            idle: std::time::Duration::MAX,
            min_idle: std::time::Duration::MAX,
            max_in_flight: usize::MAX,
            max_connections: usize::MAX,
            response_timeout: std::time::Duration::MAX,
            email_timeout: std::time::Duration::MAX,
            egress: EgressConfig::default(),
        };
        let mut command = Launch { config: &config, folder: &folder, uid, protections, cgroup: None }.command();
        let output = command.output().await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        fs::remove_dir_all(&run).unwrap();
        let pairs = printed.lines().map(|line| line.split_once(' ').unwrap());
        pairs.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
    }

    fn script(&self) -> String {
        let internal = self.core.url();
        let (internal_host, internal_port) = internal.strip_prefix("http://").unwrap().split_once(':').unwrap();
        let loopback = self.loopback.local_addr().unwrap().port();
        let own = self.own.as_ref().map(|it| it.local_addr().unwrap());
        let own = own.map(|own| format!("tcp 'own', '{}', {};", own.ip(), own.port())).unwrap_or_default();
        let dir = self.dir.path().display();
        let [unshare, io_uring, bpf] = [libc::SYS_unshare, libc::SYS_io_uring_setup, libc::SYS_bpf];
        format!(
            r#"{ATTACK}
tcp 'loopback', '127.0.0.1', {loopback};
tcp 'internal', '{internal_host}', {internal_port};
{own}
unix 'other', '{dir}/other/http';
unix 'world', '{dir}/world';
file 'read', '<', '/etc/passwd';
file 'create', '>', 'created';
call 'namespace', {unshare}, 0x10000000;
call 'io_uring', {io_uring}, 0, 0;
call 'bpf', {bpf}, 0, 0, 0;
child 'child';
"#
        )
    }
}

/// Listens on the address with which the machine reaches others, if it has one.
pub fn own_listener() -> Option<TcpListener> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("1.1.1.1:9").ok()?;
    Some(TcpListener::bind((socket.local_addr().unwrap().ip(), 0)).unwrap())
}

fn result<'a>(results: &'a [(String, String)], name: &str) -> Option<&'a str> {
    results.iter().find(|(other, _)| other == name).map(|(_, result)| result.as_str())
}

fn assert_results(results: &[(String, String)], names: &[&str], expected: i32) {
    for name in names {
        let result = result(results, name);
        let is_absent = *name == "own" && result.is_none();
        assert!(is_absent || result == Some(&expected.to_string()), "{name}: expected {expected}, got {results:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_protection_confines_escaped_code() {
    if !Path::new("/usr/bin/perl").exists() {
        return eprintln!("SKIPPED: no perl");
    }
    let targets = Targets::start().await;
    // Without protections, the attacks succeed. Only a worker with another user id is still protected, by the
    // permissions of its folder.
    let results = targets.attack(&[]).await;
    for name in ["loopback", "internal", "own", "world", "read", "create", "child"] {
        assert!(matches!(result(&results, name), Some("ok") | None), "{name}: {results:?}");
    }
    let network = ["loopback", "internal", "own"];
    if geteuid().is_root() {
        assert_results(&results, &["other"], libc::EACCES);
        let results = targets.attack(&[Protection::NetworkNamespace]).await;
        assert_results(&results, &network, libc::ENETUNREACH);
        let results = targets.attack(&[Protection::MountNamespace]).await;
        assert_results(&results, &["other", "world", "read"], libc::ENOENT);
    } else {
        eprintln!("SKIPPED: only root can create namespaces");
    }
    let results = targets.attack(&[Protection::Landlock]).await;
    assert_results(&results, &[&network[..], &["read", "create"]].concat(), libc::EACCES);
    let results = targets.attack(&[Protection::Seccomp]).await;
    assert_results(&results, &[&network[..], &["namespace", "io_uring", "bpf", "child"]].concat(), libc::ENOSYS);
}

#[tokio::test(flavor = "multi_thread")]
async fn escaped_code_reaches_nothing_with_all_protections() {
    if !Path::new("/usr/bin/perl").exists() || !geteuid().is_root() {
        return eprintln!("SKIPPED: no perl, or not root");
    }
    let results = Targets::start().await.attack(&Protection::OF_KERNEL).await;
    assert!(results.len() >= 10 && results.iter().all(|(_, result)| result != "ok"), "{results:?}");
}
