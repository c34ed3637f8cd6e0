//! The user ids of worker processes.

use std::fs;

use node::worker::config::UidRange;
use rustix::process::geteuid;
use tokio::process::{Child, Command};

use super::{HOST, Rig, unused_uids};
use crate::control_plane::State;
use crate::running::until;

/// Starts a node with simulated workers and this many user ids. Returns `None` if the tests lack the permission to
/// change user ids.
async fn rig(uids: u32) -> Option<(Rig, UidRange)> {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: only root can change user ids");
        return None;
    }
    let range = unused_uids();
    let range = UidRange { last: range.first + uids - 1, ..range };
    Some((Rig::simulated(|workers| workers.uids = range).await, range))
}

fn process_of(uid: u32) -> Child {
    Command::new("sleep").arg("100").current_dir("/").uid(uid).kill_on_drop(true).spawn().unwrap()
}

/// Returns whether the process executes code. An orphan can remain a zombie if no init process collects it.
fn is_alive(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

#[tokio::test(flavor = "multi_thread")]
async fn user_id_of_a_living_process_is_not_allocated() {
    let Some((rig, UidRange { first, last })) = rig(2).await else { return };
    let mut process = process_of(first);
    rig.serves("").await;
    assert_eq!(rig.node.visitor.get(HOST, "/uid").await.body, last.to_string());
    // The first worker uses the other id, so no id is left for the second worker.
    rig.core.deploy("two", &[("worker/index.js", b"")]);
    rig.observes("two", State::Failed).await;
    assert_eq!(rig.node.visitor.get("two.localhost", "/uid").await.status, 503);
    assert!(process.try_wait().unwrap().is_none(), "the node killed a process of an id that it did not allocate");

    process.start_kill().unwrap();
    // The process remains a zombie until the last line of this test.
    rig.observes("two", State::Serving).await;
    // The report may be sent before the route changes.
    rig.node.visitor.sees("two.localhost", "/uid", 200, &first.to_string()).await;
    process.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_a_worker_leaves_behind_are_killed_before_its_user_id_is_reused() {
    let Some((rig, UidRange { first, .. })) = rig(1).await else { return };
    rig.serves("").await;
    let daemon = rig.node.visitor.get(HOST, "/daemon").await.body;
    assert!(is_alive(&daemon), "{daemon}");
    assert_eq!(rig.node.visitor.get(HOST, "/exit").await.status, 502);
    rig.observes("app", State::Crashed).await;
    assert!(!is_alive(&daemon), "the process outlives the worker");
    rig.node.visitor.sees(HOST, "/uid", 200, &first.to_string()).await;

    // A node that stops also kills these processes.
    let daemon = rig.node.visitor.get(HOST, "/daemon").await.body;
    assert!(is_alive(&daemon), "{daemon}");
    rig.node.stop().await;
    until("the exit of the worker's daemon", || !is_alive(&daemon)).await;
}
