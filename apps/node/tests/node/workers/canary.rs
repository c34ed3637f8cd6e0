//! Secret values are in plaintext only in memory.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use testkit::reserved_address;

use super::environment::shows;
use super::{HOST, workerd};
use crate::control_plane::ControlPlane;
use crate::running::{Dir, environment, until};
use crate::visitor::Visitor;

const CANARY: &str = "canary-7f3a91c2e5";

fn contains(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
}

/// Returns the files below a folder that contain the canary.
fn files_with_canary(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_with_canary(&entry.path()));
        } else if kind.is_file() && fs::read(entry.path()).is_ok_and(|bytes| contains(&bytes)) {
            found.push(entry.path());
        }
    }
    found
}

/// Returns the files in `/proc` that show the arguments and environments of processes and contain the canary.
fn processes_with_canary() -> Vec<std::path::PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let files = processes.flat_map(|process| ["cmdline", "environ"].map(|name| process.join(name)));
    files.filter(|file| fs::read(file).is_ok_and(|bytes| contains(&bytes))).collect()
}

fn stop(mut node: Child) {
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    assert!(node.wait().unwrap().success());
}

async fn assert_hidden(user: Option<u32>) {
    let Some(workerd) = workerd() else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (core, dir, logs) = (ControlPlane::start().await, Dir::new(), Dir::new());
    let front = reserved_address();
    chown(dir.path(), user, user).unwrap();
    let start = |log: &str| {
        let program = env!("CARGO_BIN_EXE_svc-node");
        let mut node = match user {
            None => Command::new(program),
            Some(id) => {
                let (user, group) = (format!("--reuid={id}"), format!("--regid={id}"));
                let mut node = Command::new("setpriv");
                node.args([&user, &group, "--clear-groups", program]);
                node
            }
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        node.env_clear().env("PATH", path).envs(environment(&core, &dir)).env("SVC_EDGE_LISTEN", front.to_string());
        node.env("SVC_NODE_LOG", "trace").env("SVC_NODE_WORKERD", &workerd);
        let [stdout, stderr] = ["out", "err"].map(|name| fs::File::create(logs.path().join(format!("{log}.{name}"))));
        node.stdout(stdout.unwrap()).stderr(stderr.unwrap()).spawn().unwrap()
    };
    core.set_secrets("app", &[("SECRET", CANARY)]);
    core.deploy("app", &[("worker/index.js", shows("1").as_bytes())]);
    let node = start("first");
    until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
    Visitor::new(front).sees(HOST, "/", 200, CANARY).await;
    let changed = format!("changed {CANARY}");
    core.set_secrets("app", &[("SECRET", &changed)]);
    Visitor::new(front).sees(HOST, "/", 200, &changed).await;
    // A malformed part is rejected without its content.
    core.set_part("app", "secrets", serde_json::json!({ "revision": CANARY, "values": CANARY }));
    until("the rejection", || files_contain(logs.path(), "a desired part is malformed")).await;
    core.set_secrets("app", &[("SECRET", &changed), ("ANOTHER", "x")]);
    Visitor::new(front).sees(HOST, "/", 200, "ANOTHER").await;
    assert_eq!(files_with_canary(dir.path()), [] as [&Path; 0]);
    assert_eq!(processes_with_canary(), [] as [&Path; 0]);
    stop(node);
    assert_eq!(files_with_canary(dir.path()), [] as [&Path; 0]);
    let node = start("second");
    until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
    Visitor::new(front).sees(HOST, "/", 200, &changed).await;
    stop(node);
    assert_eq!(files_with_canary(dir.path()), [] as [&Path; 0]);
    assert_eq!(files_with_canary(logs.path()), [] as [&Path; 0]);
    assert!(files_contain(logs.path(), "\"TRACE\""));
}

fn files_contain(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().flatten().any(|entry| fs::read_to_string(entry.path()).unwrap().contains(text))
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_file_argument_environment_variable_or_log() {
    assert_hidden(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_hidden_without_protections() {
    if !geteuid().is_root() {
        return eprintln!("SKIPPED: the node already runs without root");
    }
    assert_hidden(Some(65534)).await;
}
