//! Workers across starts and stops of the node.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use testkit::reserved_address;

use super::{HOST, Rig, with_workers, workerd};
use crate::control_plane::{ControlPlane, sha256};
use crate::running::{Dir, RunningNode, environment, until};
use crate::visitor::Visitor;

const CODE: &[u8] = b"export default { fetch() { return new Response('from code'); } };";

fn workers_in(dir: &Path) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter(|it| fs::read_link(it.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir.join("run")))).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_leaves_no_worker_and_serves_again_after_a_restart() {
    let Some(workerd) = workerd() else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("app", &[("worker/index.js", CODE)]);
    let front = reserved_address();
    let start = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_svc-node"));
        program.env_clear().envs(environment(&core, &dir));
        program.env("SVC_EDGE_LISTEN", front.to_string()).env("SVC_NODE_WORKERD", &workerd).spawn().unwrap()
    };
    let mut node = start();
    until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
    Visitor::new(front).sees(HOST, "/", 200, "from code").await;
    assert_eq!(workers_in(dir.path()), 1);
    node.kill().unwrap();
    node.wait().unwrap();
    until("exit of the worker", || workers_in(dir.path()) == 0).await;

    let mut node = start();
    core.stop().await;
    until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
    Visitor::new(front).sees(HOST, "/", 200, "from code").await;
    assert_eq!(
        fs::read_dir(dir.path().join("run")).unwrap().count(),
        2,
        "the folder of the killed node's worker is removed"
    );
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    node.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_node_stops_workers_and_a_restart_starts_them_on_demand() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.deploy("app", &[("worker/index.js", CODE)]);
    rig.node.visitor.sees(HOST, "/", 200, "from code").await;
    let Rig { core, dir, node, .. } = rig;
    node.stop().await;
    until("exit of the worker", || workers_in(dir.path()) == 0).await;
    let node = RunningNode::start_as(&with_workers(&core, &dir, workerd().unwrap())).await;
    assert_eq!(workers_in(dir.path()), 0);
    assert_eq!(node.visitor.get(HOST, "/").await.body, "from code");
    core.remove("app");
    node.visitor.sees(HOST, "/", 404, "unknown_hostname").await;
    until("exit of the worker", || workers_in(dir.path()) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_module_is_fetched_again() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.deploy("app", &[("worker/index.js", CODE)]);
    rig.node.visitor.sees(HOST, "/", 200, "from code").await;
    let Rig { core, dir, mut node, .. } = rig;
    let name = sha256(CODE);
    let module = dir.path().join("blobs").join(&name[..2]).join(name);
    for is_gone in [true, false] {
        node.stop().await;
        if is_gone {
            fs::remove_file(&module).unwrap()
        } else {
            fs::write(&module, "short").unwrap()
        }
        node = RunningNode::start_as(&with_workers(&core, &dir, workerd().unwrap())).await;
        node.visitor.sees(HOST, "/", 200, "from code").await;
        assert_eq!(fs::read(&module).unwrap(), CODE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn index_of_a_release_without_worker_support_is_rebuilt() {
    let Some(workerd) = workerd() else { return };
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let bundle = core.deploy("app", &[("worker/index.js", CODE), ("assets/a.txt", b"asset")]);
    let node = RunningNode::start(&core, &dir).await;
    node.visitor.sees(HOST, "/a.txt", 200, "asset").await;
    let index = dir.path().join(format!("sites/{}.json", bundle.strip_prefix("sha256:").unwrap()));
    let read = || serde_json::from_slice::<serde_json::Value>(&fs::read(&index).unwrap()).unwrap();
    // Compression writes the index again.
    until("compression of the bundle", || read()["compressed"] == true).await;
    node.stop().await;
    let mut old = read();
    old.as_object_mut().unwrap().remove("code").unwrap();
    fs::write(&index, old.to_string()).unwrap();
    let node = RunningNode::start_as(&with_workers(&core, &dir, workerd)).await;
    node.visitor.sees(HOST, "/", 200, "from code").await;
    assert_eq!(core.fetches_of(&bundle), 2);
}
