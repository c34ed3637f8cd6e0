//! Starts and stops of the program.

use std::process::{Command, Stdio};
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process};
use testkit::reserved_address;

use crate::control_plane::{ControlPlane, TOKEN};
use crate::running::{Dir, environment, until};
use crate::visitor::{Visitor, get_text};

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_svc-node"));
    program.env_clear();
    program
}

#[test]
fn invalid_setting_fails_the_start_with_one_line() {
    for (environment, line) in [
        (&[][..], "svc-node: SVC_NODE_TOKEN is missing\n"),
        (
            &[("SVC_NODE_TOKEN", "hush"), ("SVC_NODE_DIR", "/d"), ("SVC_EDGE_LISTEN", "here")],
            "svc-node: SVC_EDGE_LISTEN is malformed: invalid socket address syntax\n",
        ),
        (&[("SVC_NODE_TOKN", "hush")], "svc-node: SVC_NODE_TOKN is unknown: this process has no such setting\n"),
    ] {
        let output = program().envs(environment.iter().copied()).output().unwrap();
        assert!(!output.status.success());
        assert_eq!(String::from_utf8(output.stderr).unwrap(), line);
    }
}

#[test]
fn settings_and_help_are_printed() {
    let printed = |argument: &str| {
        let output = program().arg(argument).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (succeeded, settings) = printed("--settings");
    assert!(succeeded && settings.contains("| `SVC_NODE_DIR` | required |"), "{settings}");
    let (succeeded, help) = printed("--help");
    assert!(succeeded && help.contains("--settings"), "{help}");
    assert!(!printed("--halp").0);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_and_metrics_show_that_databases_have_no_backups() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let (front, metrics) = (reserved_address(), reserved_address());
    let mut node = program()
        .envs(environment(&core, &dir))
        .env("SVC_EDGE_LISTEN", front.to_string())
        .env("SVC_NODE_METRICS_LISTEN", metrics.to_string())
        // No server listens at this address.
        .env("SVC_NODE_DATABASE_URL", "postgres://root:hush@127.0.0.1:1/postgres")
        .env("SVC_NODE_DATABASE_ADDRESS", "127.0.0.1:1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until("the metrics", || std::net::TcpStream::connect(metrics).is_ok()).await;
    let shown = get_text(&format!("http://{metrics}/metrics")).await;
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    let log = io::read_to_string(node.stdout.take().unwrap()).unwrap();
    node.wait().unwrap();
    assert!(shown.lines().any(|line| line == "svc_node_backup_store_missing 1"), "{shown}");
    assert!(log.lines().any(|line| line.contains("ERROR") && line.contains("set SVC_NODE_BACKUPS")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_stops_the_node_and_the_log_contains_no_credential() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", &[("assets/index.html", b"home")]);
    let front = reserved_address();
    let mut node = program()
        .envs(environment(&core, &dir))
        .env("SVC_EDGE_LISTEN", front.to_string())
        .env("SVC_NODE_LOG", "trace")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = node.stdout.take().unwrap();
    // The log is read from the start, because a full pipe would block the node.
    let log = thread::spawn(move || io::read_to_string(output).unwrap());
    until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
    Visitor::new(front).sees("shop.localhost", "/", 200, "home").await;
    // The report follows the line of the log.
    until("the report", || core.last_report("shop").is_some()).await;

    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    let log = log.join().unwrap();
    assert!(node.wait().unwrap().success());
    assert!(
        log.lines().all(|line| line.starts_with('{'))
            && log.contains("\"deployment is live\"")
            && log.contains("stopping"),
        "{log}"
    );
    assert!(!log.contains(TOKEN), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_serves_again_and_fetches_each_bundle_once() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let front = reserved_address();
    let start = || {
        let mut node = program();
        node.envs(environment(&core, &dir)).env("SVC_EDGE_LISTEN", front.to_string()).stdout(Stdio::null());
        node.spawn().unwrap()
    };
    let (mut node, mut bundles) = (start(), Vec::new());
    until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
    for round in 0..8 {
        for project in ["one", "two", "three"] {
            let page = format!("{project} {round}");
            bundles.push(core.deploy(project, &[("assets/index.html", page.as_bytes())]));
            let host = format!("{project}.localhost");
            Visitor::new(front).sees(&host, "/", 200, &page).await;
        }
        // The node is killed while it fetches another bundle.
        core.deploy("late", &[("assets/index.html", format!("late {round}").as_bytes())]);
        node.kill().unwrap();
        node.wait().unwrap();
        node = start();
        until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
        Visitor::new(front).sees("one.localhost", "/", 200, &format!("one {round}")).await;
        Visitor::new(front).sees("late.localhost", "/", 200, &format!("late {round}")).await;
    }
    for bundle in bundles {
        assert_eq!(core.fetches_of(&bundle), 1);
    }
    node.kill().unwrap();
    node.wait().unwrap();
}
