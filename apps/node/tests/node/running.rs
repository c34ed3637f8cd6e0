//! A node in the test process, and its directory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, process};

use node::Node;
use node::config::{CLAIM, Config, TABLE};
use settings::Settings;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::control_plane::{ControlPlane, TOKEN};
use crate::timeout::TIMEOUT;
use crate::visitor::Visitor;

/// The directory of one test, removed when dropped.
pub struct Dir(PathBuf);

impl Dir {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("svc-node-{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the environment of a node with this control plane and directory.
pub fn environment(core: &ControlPlane, dir: &Dir) -> [(String, String); 4] {
    [
        ("SVC_EDGE_LISTEN", "127.0.0.1:0"),
        ("SVC_NODE_CORE_URL", &core.url()),
        ("SVC_NODE_TOKEN", TOKEN),
        ("SVC_NODE_DIR", dir.path().to_str().unwrap()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

pub fn config(core: &ControlPlane, dir: &Dir) -> Config {
    bounded_config(core, dir, 1 << 30)
}

fn bounded_config(core: &ControlPlane, dir: &Dir, cache_bytes: u64) -> Config {
    config_with(core, dir, [("SVC_NODE_CACHE_BYTES".to_owned(), cache_bytes.to_string())])
}

/// Returns the configuration of a node with more settings.
pub fn config_with(core: &ControlPlane, dir: &Dir, more: impl IntoIterator<Item = (String, String)>) -> Config {
    let settings = Settings::read(TABLE, &CLAIM, environment(core, dir).into_iter().chain(more)).unwrap();
    Config::new(&settings).unwrap()
}

/// Waits until the condition holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TIMEOUT, "timed out waiting for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Polls until `poll` returns a value. A longer wait could reach a timeout that hides a defect, such as the keep-alive
/// time.
pub async fn eventually<T>(what: &str, poll: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(TIMEOUT, what, poll).await
}

pub async fn eventually_within<T>(limit: Duration, what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let (began, mut pause) = (Instant::now(), Duration::from_millis(5));
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(began.elapsed() < limit, "timed out waiting for {what}");
        sleep(pause).await;
        pause = Duration::from_millis(50).min(pause * 2);
    }
}

pub struct RunningNode {
    pub visitor: Visitor,
    /// The address of the TLS listener, if the node terminates TLS.
    pub tls: Option<SocketAddr>,
    /// The address of the metrics, if the node serves them.
    pub metrics: Option<SocketAddr>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl RunningNode {
    pub async fn start(core: &ControlPlane, dir: &Dir) -> Self {
        Self::start_as(&config(core, dir)).await
    }

    /// Starts a node with this cache size limit.
    pub async fn start_bounded(core: &ControlPlane, dir: &Dir, cache_bytes: u64) -> Self {
        Self::start_as(&bounded_config(core, dir, cache_bytes)).await
    }

    pub async fn start_as(config: &Config) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Retry the start: a previous node unlocks the directory only when its last thread exits.
        let mut started = None;
        until("the directory", || {
            started = Node::start(config).ok();
            started.is_some()
        })
        .await;
        let node = started.unwrap();
        let (visitor, tls, metrics) = (Visitor::new(node.address()), node.tls_address(), node.metrics_address());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(node.run_until(async { drop(stopped.await) }));
        Self { visitor, tls, metrics, stop, task }
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}
