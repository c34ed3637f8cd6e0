//! A worker process.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::assets::Registration;
use super::definition::Definition;
use super::folder::{Folder, FolderHandle, HTTP_SOCKET, PROBE_SOCKET, Socket};
use super::launch;
use super::output::Output;
use super::uids::Uid;
use super::watchdog::probe;
use super::workers::Workers;
use crate::index::Index;

/// The limit of requests and WebSockets in flight. Each takes two of the node's file descriptors.
const MAX_IN_FLIGHT: usize = 1000;

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A process that responded at least once. It may have exited since.
pub struct Process {
    pub pid: u32,
    pub started_at: Instant,
    sockets: OnceLock<Sockets>,
    kill: Arc<Notify>,
    exit_reason: Mutex<Option<ExitReason>>,
    usage: watch::Sender<Usage>,
    exit_status: watch::Receiver<Option<ExitStatus>>,
    output: Output,
}

/// Why a process exited.
#[derive(Debug, Clone)]
pub enum ExitReason {
    /// The node stopped the process.
    Stopped,
    /// The process failed, with a message for the project's members.
    Crashed(String),
}

/// The sockets of the process, known after its first response.
struct Sockets {
    http: Socket,
    probe: Socket,
}

#[derive(Clone, Copy)]
pub struct Usage {
    in_flight: usize,
    last_request_at: Instant,
    closed: bool,
}

/// Counts a request in flight, so that the process is not stopped as idle.
pub struct RequestGuard(Arc<Process>);

/// The resources of a process, released only after it has exited.
struct Resources {
    _folder: Folder,
    _uid: Option<Uid>,
    _assets: Registration,
}

impl Process {
    /// Starts a process and waits until it responds. Returns a message for the project's members if it fails to start.
    pub async fn start(workers: &Arc<Workers>, project: &str, index: &Arc<Index>) -> Result<Arc<Self>, String> {
        let (process, handle) = Self::spawn(workers, project, index).await.map_err(|error| {
            tracing::error!(project, error = format!("{error:#}"), "failed to start a worker");
            "The node could not start the worker. If this persists, contact the operator.".to_owned()
        })?;
        let mut exit_status = process.exit_status.clone();
        let ready = async {
            loop {
                match handle.probed_sockets().await {
                    Ok(sockets) => return sockets,
                    Err(_) => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let started = tokio::select! {
            _ = exit_status.wait_for(Option::is_some) => Err("The worker exited while it started"),
            probed = timeout(START_TIMEOUT, ready) => {
                probed.map_err(|_| "The worker did not respond within 10 seconds of its start")
            },
        };
        let reason = match started {
            Ok(sockets) => {
                process.sockets.get_or_init(|| sockets);
                return Ok(process);
            }
            Err(reason) => reason,
        };
        process.kill(ExitReason::Stopped);
        let _ = exit_status.wait_for(Option::is_some).await;
        let output = process.output.error_message().await;
        Err(if output.is_empty() { format!("{reason}.") } else { output })
    }

    async fn spawn(
        workers: &Arc<Workers>,
        project: &str,
        index: &Arc<Index>,
    ) -> anyhow::Result<(Arc<Self>, FolderHandle)> {
        let uid = workers.uids.allocate()?;
        let assets = workers.registry.register(Arc::clone(index));
        let (folder, handle, uid, assets) = {
            let (workers, index) = (Arc::clone(workers), Arc::clone(index));
            let prepare = move || {
                let code = index.code.as_ref().context("no code")?;
                let definition = Definition::new(code, assets.key());
                let number = uid.as_ref().map(|uid| uid.number);
                let folder = workers.run.create_folder(&workers.cache, &definition, number)?;
                let handle = folder.handle(number)?;
                anyhow::Ok((folder, handle, uid, assets))
            };
            spawn_blocking(prepare).await??
        };
        let mut command = launch::command(&workers.config, folder.path(), uid.as_ref().map(|uid| uid.number));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = workers.spawner.spawn(command).await.context("failed to spawn the process")?;
        let output = Output::follow(&mut child, project);
        let pid = child.id().context("the process exited immediately")?;
        let kill = Arc::new(Notify::new());
        let (exited, exit_status) = watch::channel(None);
        let resources = Resources { _folder: folder, _uid: uid, _assets: assets };
        tokio::spawn(supervise(child, Arc::clone(&kill), exited, resources));
        let (started_at, exit_reason) = (Instant::now(), Mutex::new(None));
        let (usage, _) = watch::channel(Usage { in_flight: 0, last_request_at: started_at, closed: false });
        let sockets = OnceLock::new();
        Ok((Arc::new(Self { pid, started_at, sockets, kill, exit_reason, usage, exit_status, output }), handle))
    }

    /// Admits a request, unless the process is stopping or has exited.
    pub fn admit_request(self: &Arc<Self>) -> Option<RequestGuard> {
        let admit = |usage: &mut Usage| {
            if !usage.closed {
                usage.in_flight += 1;
                usage.last_request_at = Instant::now();
            }
            !usage.closed
        };
        (self.exit_status.borrow().is_none() && self.usage.send_if_modified(admit))
            .then(|| RequestGuard(Arc::clone(self)))
    }

    /// Whether the limit of requests in flight is reached.
    pub fn is_full(&self) -> bool {
        self.usage.borrow().in_flight >= MAX_IN_FLIGHT
    }

    /// Kills the process.
    pub fn kill(&self, reason: ExitReason) {
        self.exit_reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.usage.send_modify(|usage| usage.closed = true);
        self.kill.notify_one();
    }

    /// Stops the process if it had no request for this long.
    pub fn stop_if_idle(&self, idle: Duration) {
        let close = |usage: &mut Usage| {
            usage.closed |= usage.in_flight == 0 && usage.last_request_at.elapsed() >= idle;
            usage.closed
        };
        if self.usage.send_if_modified(close) {
            self.kill(ExitReason::Stopped);
        }
    }

    /// Whether a request is in flight, or was within this time.
    pub fn was_used_within(&self, time: Duration) -> bool {
        let usage = self.usage.borrow();
        usage.in_flight > 0 || usage.last_request_at.elapsed() < time
    }

    /// Waits until no request is in flight.
    pub async fn wait_until_drained(&self) {
        // `self` holds the sender, so the channel is open.
        let _ = self.usage.subscribe().wait_for(|usage| usage.in_flight == 0).await;
    }

    /// Waits until the process exits.
    pub async fn wait_for_exit(&self) -> ExitReason {
        let mut exit_status = self.exit_status.clone();
        let status = exit_status.wait_for(Option::is_some).await.map_or(None, |status| *status);
        let reason = self.exit_reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(reason) = reason {
            return reason;
        }
        let output = self.output.error_message().await;
        let status = status.map(|status| status.to_string()).unwrap_or_default();
        ExitReason::Crashed(format!("The worker exited unexpectedly ({status}). {output}").trim_end().to_owned())
    }

    /// Probes the process.
    pub async fn probe(&self) -> io::Result<()> {
        probe(&self.sockets()?.probe).await
    }

    fn sockets(&self) -> io::Result<&Sockets> {
        self.sockets.get().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl FolderHandle {
    /// Opens the sockets, if the process responds to a probe.
    async fn probed_sockets(&self) -> io::Result<Sockets> {
        let socket = self.socket(PROBE_SOCKET)?;
        probe(&socket).await?;
        Ok(Sockets { http: self.socket(HTTP_SOCKET)?, probe: socket })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill.notify_one();
    }
}

impl RequestGuard {
    /// Opens a connection for the request.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        self.0.sockets()?.http.connect().await
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.usage.send_modify(|usage| {
            usage.in_flight -= 1;
            usage.last_request_at = Instant::now();
        });
    }
}

/// Waits for the process to exit, kills it on request, and then releases its resources.
async fn supervise(
    mut child: Child,
    kill: Arc<Notify>,
    exited: watch::Sender<Option<ExitStatus>>,
    resources: Resources,
) {
    let status = tokio::select! {
        status = child.wait() => status,
        () = kill.notified() => {
            // Fails if the process has already exited.
            let _ = child.start_kill();
            child.wait().await
        }
    };
    let _ = spawn_blocking(move || drop(resources)).await;
    exited.send_replace(Some(status.unwrap_or_default()));
}
