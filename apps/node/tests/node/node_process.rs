//! A node in its own process, which runs workers.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use testkit::{WITHOUT_SYSTEM_CERTIFICATES, reserved_address};
use tokio::time::sleep;

use crate::control_plane::ControlPlane;
use crate::running::{Dir, environment, until};
use crate::timeout::TIMEOUT;
use crate::visitor::{Visitor, get_text};
use crate::workers::{unused_uids, workerd};

pub struct NodeProcess {
    pub core: ControlPlane,
    pub dir: Dir,
    settings: Vec<(String, String)>,
    front: SocketAddr,
    metrics: SocketAddr,
    process: Child,
    log: File,
}

impl NodeProcess {
    /// Starts a node with more settings. Requires `workerd`.
    pub async fn start<N: ToString, V: ToString>(
        core: ControlPlane,
        settings: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let (dir, front, metrics) = (Dir::new(), reserved_address(), reserved_address());
        let mut settings: Vec<(String, String)> =
            settings.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        settings.push(("SVC_NODE_METRICS_LISTEN".to_owned(), metrics.to_string()));
        let (process, log) = spawn(&core, &dir, &settings, front);
        let node = Self { core, dir, settings, front, metrics, process, log };
        node.wait_until_open().await;
        node
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts the node after [`Self::kill`].
    pub async fn restart(&mut self) {
        (self.process, self.log) = spawn(&self.core, &self.dir, &self.settings, self.front);
        self.wait_until_open().await;
    }

    async fn wait_until_open(&self) {
        until("the front", || TcpStream::connect(self.front).is_ok()).await;
    }

    pub fn visitor(&self) -> Visitor {
        Visitor::new(self.front)
    }

    /// Waits until the metrics contain each of these texts. A counter may change after the response to a request.
    pub async fn has_metrics(&self, texts: &[&str]) {
        let began = Instant::now();
        loop {
            let metrics = get_text(&format!("http://{}/metrics", self.metrics)).await;
            let Some(missing) = texts.iter().find(|text| !metrics.contains(**text)) else { return };
            assert!(began.elapsed() < TIMEOUT, "{missing} is missing: {metrics}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns a value of the process from `/proc`, in bytes.
    pub fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().unwrap() * 1024
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        let mut log = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = self.log.read_at(&mut chunk, log.len() as u64) {
            log.extend_from_slice(&chunk[..read]);
        }
        String::from_utf8(log).unwrap()
    }

    /// Sets the peak of the memory to its current value.
    pub fn reset_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5").unwrap();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            println!("The log of the node:\n{}", self.log());
        }
    }
}

/// Starts the process. Returns it with the unnamed file of its log.
fn spawn(core: &ControlPlane, dir: &Dir, settings: &[(String, String)], front: SocketAddr) -> (Child, File) {
    let (uids, log) = (unused_uids(), tempfile::tempfile().unwrap());
    let process = Command::new(env!("CARGO_BIN_EXE_svc-node"))
        .env_clear()
        .envs([WITHOUT_SYSTEM_CERTIFICATES])
        .envs(environment(core, dir))
        .envs(settings.iter().cloned())
        .env("SVC_EDGE_LISTEN", front.to_string())
        .env("SVC_NODE_WORKERD", workerd().unwrap())
        .env("SVC_NODE_WORKER_UIDS", format!("{}-{}", uids.first, uids.last))
        .stdout(log.try_clone().unwrap())
        .spawn()
        .unwrap();
    (process, log)
}
