//! A worker process.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::bindings::ConnectionLimits;
use super::budget::MemoryShare;
use super::capnp::Message;
use super::definition::heap_limit;
use super::folder::{EMAIL_SOCKET, FolderHandle, HTTP_SOCKET, PROBE_SOCKET, Socket};
use super::output::Output;
use super::resources::Resources;
use super::watchdog::probe;
use super::workers::Workers;
use crate::cache::Cache;
use crate::environment::Environment;
use crate::index::Index;

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The beginning of the report that V8 writes before it ends a process whose heap is full.
const HEAP_IS_FULL: &str = "<--- Last few GCs --->";

/// A process that responded at least once. It may have exited since.
pub struct Process {
    /// The project's id.
    pub project: String,
    pub pid: u32,
    pub started_at: Instant,
    pub memory_share: MemoryShare,
    sockets: OnceLock<Sockets>,
    kill: Arc<Notify>,
    exit_reason: Mutex<Option<ExitReason>>,
    usage: watch::Sender<Usage>,
    exit: watch::Receiver<Option<Exit>>,
    output: Output,
    /// The memory limit in bytes.
    memory: u64,
    /// The limit of requests and WebSockets in flight.
    max_in_flight: usize,
}

/// Why a process exited.
#[derive(Debug, Clone)]
pub enum ExitReason {
    /// The node stopped the process.
    Stopped,
    /// The process failed, with a message for the project's members.
    Crashed(String),
}

impl ExitReason {
    /// Returns the reason for a process that used more memory than this limit in bytes.
    pub fn exceeded_memory(limit: u64) -> Self {
        Self::Crashed(format!("The worker used more than {} MiB of memory.", limit >> 20))
    }

    /// Returns the reason for a process whose JavaScript objects used more memory than this limit in bytes.
    fn exceeded_heap(limit: u64) -> Self {
        Self::Crashed(format!("The worker used more than {} MiB of memory for JavaScript objects.", limit >> 20))
    }
}

/// The end of a process.
#[derive(Debug, Clone, Copy, Default)]
struct Exit {
    status: ExitStatus,
    /// Whether the kernel killed the process because of the limit of its control group.
    exceeded_memory: bool,
}

/// The sockets of the process, known after its first response.
struct Sockets {
    http: Socket,
    /// `None` if the process started without a mail address.
    email: Option<Socket>,
    probe: Socket,
}

/// How a process is used, which decides when it is stopped.
#[derive(Clone, Copy)]
pub struct Usage {
    in_flight: usize,
    last_request_at: Instant,
    closed: bool,
}

/// Counts a request in flight, so that the process is not stopped as idle.
pub struct RequestGuard(Arc<Process>);

impl Process {
    /// Starts a process and waits until it responds. Returns a message for the project's members if it fails to start.
    pub async fn start(
        workers: &Arc<Workers>,
        owner: &str,
        project: &str,
        index: &Arc<Index>,
        environment: &Arc<Environment>,
        memory_share: MemoryShare,
    ) -> Result<Arc<Self>, String> {
        let spawned = Self::spawn(workers, owner, project, index, environment, memory_share).await;
        let (process, handle) = spawned.map_err(|error| {
            tracing::error!(project, error = format!("{error:#}"), "failed to start a worker");
            "The node could not start the worker. If this persists, contact the operator.".to_owned()
        })?;
        let mut exit = process.exit.clone();
        let ready = async {
            loop {
                match handle.probed_sockets(environment.has_email()).await {
                    Ok(sockets) => return sockets,
                    Err(_) => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let started = tokio::select! {
            _ = exit.wait_for(Option::is_some) => Err("The worker exited while it started"),
            probed = timeout(START_TIMEOUT, ready) => {
                probed.map_err(|_| "The worker did not respond within 10 seconds of its start")
            },
        };
        let reason = match started {
            Ok(sockets) => {
                process.sockets.get_or_init(|| sockets);
                process.output.set_launched();
                return Ok(process);
            }
            Err(reason) => reason,
        };
        process.kill(ExitReason::Stopped);
        // Fails only if the supervision of the process has ended.
        let _ = exit.wait_for(Option::is_some).await;
        let output = process.output.error_message().await;
        Err(if output.is_empty() { format!("{reason}.") } else { output })
    }

    async fn spawn(
        workers: &Arc<Workers>,
        owner: &str,
        project: &str,
        index: &Arc<Index>,
        environment: &Arc<Environment>,
        memory_share: MemoryShare,
    ) -> anyhow::Result<(Arc<Self>, FolderHandle)> {
        let connections = workers.connections.of(owner.to_owned());
        let connections = ConnectionLimits::new(workers.config.max_connections / 2, connections);
        let registration = workers.bindings.register(owner, project, Arc::clone(index), connections);
        let (resources, configuration) = {
            let (workers, index, environment) = (Arc::clone(workers), Arc::clone(index), Arc::clone(environment));
            spawn_blocking(move || Resources::prepare(&workers, &index, &environment, registration)).await??
        };
        let (handle, mut command) = (resources.folder_handle()?, resources.command(workers));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = workers.spawner.spawn(command).await.context("failed to spawn the process")?;
        let stdin = child.stdin.take().context("the process has no standard input")?;
        tokio::spawn(configure(stdin, configuration, Arc::clone(&workers.cache)));
        let output = Output::follow(&mut child, project);
        let pid = child.id().context("the process exited immediately")?;
        let kill = Arc::new(Notify::new());
        let (exited, exit) = watch::channel(None);
        tokio::spawn(supervise(child, Arc::clone(&kill), exited, resources));
        let (started_at, exit_reason) = (Instant::now(), Mutex::new(None));
        let (usage, _) = watch::channel(Usage { in_flight: 0, last_request_at: started_at, closed: false });
        let process = Self {
            project: project.to_owned(),
            pid,
            started_at,
            memory_share,
            sockets: OnceLock::new(),
            kill,
            exit_reason,
            usage,
            exit,
            output,
            memory: workers.config.memory,
            max_in_flight: workers.config.max_in_flight,
        };
        Ok((Arc::new(process), handle))
    }

    /// Admits a request, unless the limit of requests in flight is reached, or the process is stopping or has exited.
    pub fn admit_request(self: &Arc<Self>) -> Option<RequestGuard> {
        let admit = |usage: &mut Usage| {
            let is_admitted = !usage.closed && usage.in_flight < self.max_in_flight;
            if is_admitted {
                usage.in_flight += 1;
                usage.last_request_at = Instant::now();
            }
            is_admitted
        };
        (self.exit.borrow().is_none() && self.usage.send_if_modified(admit)).then(|| RequestGuard(Arc::clone(self)))
    }

    /// Returns whether the process admits requests below the limit.
    pub fn is_running(&self) -> bool {
        self.exit.borrow().is_none() && !self.usage.borrow().closed
    }

    /// Kills the process.
    pub fn kill(&self, reason: ExitReason) {
        self.exit_reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.usage.send_modify(|usage| usage.closed = true);
        self.memory_share.release();
        self.kill.notify_one();
    }

    /// Stops the process if it had no request for this long. Returns whether this call stopped it.
    pub fn stop_if_idle(&self, idle: Duration) -> bool {
        let close = |usage: &mut Usage| {
            let is_idle = usage.is_idle(idle);
            usage.closed |= is_idle;
            is_idle
        };
        let is_stopped = self.usage.send_if_modified(close);
        if is_stopped {
            self.kill(ExitReason::Stopped);
        }
        is_stopped
    }

    /// Returns whether the process is in use, which means that it had a request within this time, and the time of its
    /// last request. Returns `None` if it does not run.
    pub fn last_use(&self, idle: Duration) -> Option<(bool, Instant)> {
        let usage = *self.usage.borrow();
        self.is_running().then(|| (!usage.is_idle(idle), usage.last_request_at))
    }

    /// Returns whether a request is in flight, or was within this time.
    pub fn was_used_within(&self, time: Duration) -> bool {
        let usage = self.usage.borrow();
        usage.in_flight > 0 || usage.last_request_at.elapsed() < time
    }

    /// Waits until the process had no request for this long.
    pub async fn wait_until_idle(&self, idle: Duration) {
        let mut usage = self.usage.subscribe();
        loop {
            let drained = usage.wait_for(|usage| usage.in_flight == 0).await.map(|usage| usage.last_request_at);
            // This cannot fail: `self` keeps the sender alive.
            let Ok(last_request_at) = drained else { return };
            let rest = idle.saturating_sub(last_request_at.elapsed());
            if rest.is_zero() {
                return;
            }
            sleep(rest).await;
        }
    }

    /// Waits until the process exits.
    pub async fn wait_for_exit(&self) -> ExitReason {
        let mut exit = self.exit.clone();
        let exit = exit.wait_for(Option::is_some).await.map_or(None, |exit| *exit).unwrap_or_default();
        let reason = self.exit_reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(reason) = reason {
            return reason;
        }
        if exit.exceeded_memory {
            return ExitReason::exceeded_memory(self.memory);
        }
        let (status, output) = (exit.status, self.output.error_message().await);
        if output.contains(HEAP_IS_FULL) {
            return ExitReason::exceeded_heap(heap_limit(self.memory));
        }
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

impl Usage {
    fn is_idle(&self, idle: Duration) -> bool {
        !self.closed && self.in_flight == 0 && self.last_request_at.elapsed() >= idle
    }
}

impl FolderHandle {
    /// Opens the sockets, if the process responds to a probe.
    async fn probed_sockets(&self, has_email: bool) -> io::Result<Sockets> {
        let socket = self.socket(PROBE_SOCKET)?;
        probe(&socket).await?;
        let email = has_email.then(|| self.socket(EMAIL_SOCKET)).transpose()?;
        Ok(Sockets { http: self.socket(HTTP_SOCKET)?, email, probe: socket })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill.notify_one();
    }
}

impl RequestGuard {
    /// Returns the id of the project.
    pub fn project(&self) -> &str {
        &self.0.project
    }

    /// Opens a connection for the request.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        self.0.sockets()?.http.connect().await
    }

    /// Opens a connection for a received mail. Returns `None` if the process started without a mail address.
    pub async fn connect_email(&self) -> io::Result<Option<UnixStream>> {
        match &self.0.sockets()?.email {
            Some(socket) => Ok(Some(socket.connect().await?)),
            None => Ok(None),
        }
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

/// Writes the configuration to the process.
async fn configure(mut stdin: ChildStdin, configuration: Message, cache: Arc<Cache>) {
    let Err(error) = configuration.write(&mut stdin, |content| cache.blob_path(content)).await else { return };
    // If a process exits before it has read the configuration, the failed start is reported with its output.
    if error.downcast_ref::<io::Error>().is_none_or(|error| error.kind() != io::ErrorKind::BrokenPipe) {
        tracing::error!(error = format!("{error:#}"), "failed to configure a worker");
    }
}

/// Waits for the process to exit, kills it on request, and then releases its resources.
async fn supervise(mut child: Child, kill: Arc<Notify>, exited: watch::Sender<Option<Exit>>, resources: Resources) {
    let status = tokio::select! {
        status = child.wait() => status,
        () = kill.notified() => {
            // Fails if the process has already exited.
            let _ = child.start_kill();
            child.wait().await
        }
    };
    let release = move || {
        let exceeded_memory = resources.exceeded_memory();
        drop(resources);
        exceeded_memory
    };
    let exceeded_memory = spawn_blocking(release).await.unwrap_or_default();
    exited.send_replace(Some(Exit { status: status.unwrap_or_default(), exceeded_memory }));
}
