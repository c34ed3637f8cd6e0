//! Worker code in a real `workerd`. `cargo xtask test` sets its path in `SVC_TEST_WORKERD`.

mod bindings;
mod canary;
mod egress;
mod environment;
mod escape;
mod isolation;
mod lifetime;
mod memory;
mod name_server;
mod protections;
mod serving;
mod simulated;
mod swapping;
mod timeouts;
mod unread;
mod upgrades;
mod user_ids;
mod watchdog;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use node::config::Config;
use node::worker::config::{Config as Workers, EgressConfig, UidRange};
use tokio::time::timeout;

use crate::control_plane::{ControlPlane, Observation, State};
use crate::running::{Dir, RunningNode, config};
use crate::timeout::TIMEOUT;

const HOST: &str = "app.localhost";

/// A node that runs workers.
struct Rig {
    core: ControlPlane,
    dir: Dir,
    node: RunningNode,
    /// The number of observations that the test consumed.
    observed: AtomicUsize,
}

pub fn workerd() -> Option<PathBuf> {
    let workerd = std::env::var_os("SVC_TEST_WORKERD").map(PathBuf::from);
    if workerd.is_none() {
        eprintln!("SKIPPED: no workerd; run cargo xtask test, which installs it with npm, or set SVC_TEST_WORKERD");
    }
    workerd
}

/// Returns a range of user ids that no other node of the tests uses. This is necessary because a node kills the
/// processes that its workers leave.
pub fn unused_uids() -> UidRange {
    const COUNT: u32 = 10;
    static NEXT: AtomicU32 = AtomicU32::new(300_000);
    let first = NEXT.fetch_add(COUNT, Ordering::Relaxed);
    UidRange { first, last: first + COUNT - 1 }
}

/// Returns the configuration of a node that runs workers.
pub fn with_workers(core: &ControlPlane, dir: &Dir, workerd: PathBuf) -> Config {
    let workers = Workers {
        workerd,
        launcher: env!("CARGO_BIN_EXE_svc-node").into(),
        memory: 256 << 20,
        total_memory: 16 << 30,
        uids: unused_uids(),
        idle: Duration::from_secs(900),
        min_idle: Duration::from_secs(10),
        max_in_flight: 1000,
        max_connections: 4096,
        response_timeout: Duration::from_secs(100),
        email_timeout: Duration::from_secs(30),
        egress: EgressConfig::default(),
    };
    let metrics_listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    Config { workers: Some(workers), metrics_listen, ..config(core, dir) }
}

impl Rig {
    /// Starts the node. Returns `None` without `workerd`.
    async fn start() -> Option<Self> {
        Self::start_with(|_| ()).await
    }

    async fn start_with(change: impl FnOnce(&mut Workers)) -> Option<Self> {
        Some(Self::start_as(workerd()?, change).await)
    }

    /// Starts a node with simulated workers.
    async fn simulated(change: impl FnOnce(&mut Workers)) -> Self {
        let change = |workers: &mut Workers| {
            workers.launcher = simulated::LAUNCHER.into();
            change(workers);
        };
        Self::start_as(PathBuf::new(), change).await
    }

    async fn start_as(workerd: PathBuf, change: impl FnOnce(&mut Workers)) -> Self {
        let change = |config: &mut Config| {
            config.workers.as_mut().map(change);
        };
        Self::start_node(workerd, change).await
    }

    async fn start_node(workerd: PathBuf, change: impl FnOnce(&mut Config)) -> Self {
        let (core, dir) = (ControlPlane::start().await, Dir::new());
        let mut config = with_workers(&core, &dir, workerd);
        change(&mut config);
        let node = RunningNode::start_as(&config).await;
        Self { core, dir, node, observed: AtomicUsize::new(0) }
    }

    fn deploy(&self, code: &str) {
        self.core.deploy("app", &[("worker/index.js", code.as_bytes())]);
    }

    /// Waits until this state of a project is reported. Skips earlier observations.
    async fn observes(&self, project: &str, state: State) -> Observation {
        let awaited = async {
            loop {
                let seen = self.core.observation(self.observed.fetch_add(1, Ordering::Relaxed)).await;
                if seen.project == project && seen.state == state {
                    return seen;
                }
            }
        };
        let seen = timeout(TIMEOUT, awaited).await;
        assert!(seen.is_ok(), "timed out waiting for {state:?} of {project}");
        seen.unwrap()
    }

    async fn serves(&self, code: &str) {
        self.deploy(code);
        self.observes("app", State::Serving).await;
    }
}
