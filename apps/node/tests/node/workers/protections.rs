//! The protections that the node applies and reports.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use node::worker::protection::Protection;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use testkit::reserved_address;

use super::isolation::{field, processes};
use super::{HOST, Rig, workerd};
use crate::control_plane::ControlPlane;
use crate::running::{Dir, environment, until};
use crate::visitor::{Visitor, get_text};

const CODE: &str = "export default { fetch() { return new Response('from code'); } };";

/// Returns whether the metrics show the protection.
pub fn is_shown(metrics: &str, protection: Protection) -> bool {
    let line = format!("svc_node_worker_protection{{protection=\"{}\"}} ", protection.name());
    let value = metrics.lines().find_map(|it| it.strip_prefix(&line));
    assert!(matches!(value, Some("0" | "1")), "{metrics}");
    value == Some("1")
}

pub async fn metrics(address: SocketAddr) -> String {
    get_text(&format!("http://{address}/metrics")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_has_the_protections_that_the_metrics_show() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(CODE).await;
    let metrics = metrics(rig.node.metrics.unwrap()).await;
    let (pid, status) = processes(&rig).pop().unwrap();
    let namespace = |name: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
    let own = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
    let is_root = geteuid().is_root();
    assert_eq!(is_shown(&metrics, Protection::UserId), is_root);
    assert_eq!(is_shown(&metrics, Protection::NetworkNamespace), namespace("net") != own("net"));
    assert_eq!(is_shown(&metrics, Protection::MountNamespace), namespace("mnt") != own("mnt"));
    assert_eq!(is_shown(&metrics, Protection::Seccomp), field(&status, "Seccomp:") == "2");
    if is_shown(&metrics, Protection::MountNamespace) {
        let root = Path::new("/proc").join(pid.to_string()).join("root");
        let names = |path: &Path| fs::read_dir(path).unwrap().map(|it| it.unwrap().file_name()).collect::<Vec<_>>();
        let run = fs::canonicalize(rig.dir.path().join("run")).unwrap();
        let inside = names(&root.join(run.strip_prefix("/").unwrap()));
        // Another worker's folder and the node's files do not exist there.
        assert_eq!(inside.len(), 1, "{inside:?}");
        let top = names(&root);
        assert!(top.iter().all(|name| name != "etc" && name != "proc" && name != "var"), "{top:?}");
    }
    if !is_root {
        return eprintln!("SKIPPED: only root has all protections");
    }
    for protection in [Protection::NetworkNamespace, Protection::MountNamespace] {
        assert!(is_shown(&metrics, protection), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn control_group_limits_the_worker_and_is_removed() {
    let Some(rig) = Rig::start().await else { return };
    if !is_shown(&metrics(rig.node.metrics.unwrap()).await, Protection::Cgroup) {
        return eprintln!("SKIPPED: no control groups");
    }
    rig.serves(CODE).await;
    let (pid, _) = processes(&rig).pop().unwrap();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let name = groups.lines().find_map(|line| Some(line.split_once("/svc-workers-")?.1)).unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(" - cgroup")).map(|line| line.split(' ').nth(4).unwrap());
    let found = mounts.flat_map(|mount| find(Path::new(mount), &format!("svc-workers-{name}"))).collect::<Vec<_>>();
    let read = |names: [&str; 2]| {
        let file = found.iter().flat_map(|group| names.map(|name| group.join(name))).find(|file| file.exists());
        fs::read_to_string(file.unwrap()).unwrap().trim().to_owned()
    };
    assert_eq!(read(["memory.max", "memory.limit_in_bytes"]), (320 << 20).to_string());
    assert_eq!(read(["pids.max", "pids.max"]), "64");
    // The limit of all workers is a quarter above that of the configuration.
    assert_eq!(read(["../memory.max", "../memory.limit_in_bytes"]), (20_u64 << 30).to_string());
    assert!(["100", "1024"].contains(&read(["cpu.weight", "cpu.shares"]).as_str()));
    rig.core.remove("app");
    until("the removal of the control groups", || found.iter().all(|group| !group.exists())).await;
}

/// Returns the folders below `root` whose path ends with this.
fn find(root: &Path, end: &str) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let folders = entries.flatten().filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir())).map(|it| it.path());
    folders.flat_map(|path| if path.ends_with(end) { vec![path] } else { find(&path, end) }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unprivileged_node_runs_workers_and_reports_the_missing_protections() {
    let Some(workerd) = workerd() else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("app", &[("worker/index.js", CODE.as_bytes())]);
    let [front, address] = [reserved_address(), reserved_address()];
    let program = env!("CARGO_BIN_EXE_svc-node");
    let mut node = Command::new(program);
    if geteuid().is_root() {
        let nobody = 65534;
        node = Command::new("setpriv");
        node.args(["--reuid", &nobody.to_string(), "--regid", &nobody.to_string(), "--clear-groups"]).arg(program);
        chown(dir.path(), Some(nobody), Some(nobody)).unwrap();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    node.env_clear().env("PATH", path).envs(environment(&core, &dir)).env("SVC_EDGE_LISTEN", front.to_string());
    node.env("SVC_NODE_METRICS_LISTEN", address.to_string()).env("SVC_NODE_WORKERD", workerd);
    let mut node = node.stdout(Stdio::piped()).spawn().unwrap();
    until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
    Visitor::new(front).sees(HOST, "/", 200, "from code").await;
    let shown = metrics(address).await;
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    let mut log = String::new();
    node.stdout.take().unwrap().read_to_string(&mut log).unwrap();
    node.wait().unwrap();
    for protection in Protection::ALL {
        let is_logged = log.lines().any(|line| {
            line.contains("ERROR")
                && line.contains("workers run without a protection")
                && line.contains(protection.name())
        });
        assert_eq!(is_logged, !is_shown(&shown, protection), "{protection:?}: {log}{shown}");
    }
    assert!(!is_shown(&shown, Protection::UserId) && !is_shown(&shown, Protection::NetworkNamespace), "{shown}");
}
