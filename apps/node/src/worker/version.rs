//! One version of a project's code, and its process.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use protocol::DeploymentState;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{sleep, timeout};

use super::process::{ExitReason, Process, RequestGuard};
use super::watchdog::watch;
use super::workers::Workers;
use crate::backoff::Backoff;
use crate::digest::Digest;
use crate::index::Index;

/// The longest delay before a crashing worker is restarted.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);
/// A crash after this uptime resets the backoff.
const HEALTHY_UPTIME: Duration = Duration::from_secs(5 * 60);
/// The delay before a version retires: requests may still hold the previous routing table.
const GRACE_PERIOD: Duration = Duration::from_secs(1);
/// The timeout of the requests in flight on an old version.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A version of a project. Its process is started on demand, one start at a time.
pub struct Worker {
    pub project: String,
    pub bundle: Digest,
    pub index: Arc<Index>,
    version: AtomicI32,
    workers: Arc<Workers>,
    process: Mutex<Option<Arc<Process>>>,
    restart: AsyncMutex<RestartState>,
    retired: AtomicBool,
}

/// The state of restarts: backoff and last result.
struct RestartState {
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// Whether the last process crashed.
    has_crashed: bool,
    /// The last reported start error.
    last_error: Option<String>,
}

/// Why a request is not admitted.
pub enum Rejection {
    /// The worker is not running and is not restarted before this time has passed.
    BackingOff(Duration),
    /// The limit of requests in flight is reached.
    Full,
}

/// The worker is not running and is not restarted before this time has passed.
struct BackingOff(Duration);

impl Worker {
    pub fn new(workers: &Arc<Workers>, project: &str, version: i32, bundle: Digest, index: Arc<Index>) -> Arc<Self> {
        let backoff = Backoff::up_to(MAX_RESTART_DELAY);
        Arc::new(Self {
            project: project.to_owned(),
            bundle,
            index,
            version: AtomicI32::new(version),
            workers: Arc::clone(workers),
            process: Mutex::default(),
            restart: AsyncMutex::new(RestartState { retry_at: None, backoff, has_crashed: false, last_error: None }),
            retired: AtomicBool::new(false),
        })
    }

    /// Sets the version: the same bundle may be deployed again.
    pub fn set_version(&self, version: i32) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// The current version of the bundle.
    pub fn version(&self) -> i32 {
        self.version.load(Ordering::Relaxed)
    }

    /// Admits a request, and starts the process if it is not running. The start continues if the caller is cancelled.
    pub async fn admit_request(self: &Arc<Self>) -> Result<RequestGuard, Rejection> {
        if self.current().is_some_and(|process| process.is_full()) {
            return Err(Rejection::Full);
        }
        if let Some(guard) = self.admit_if_running() {
            return Ok(guard);
        }
        let worker = Arc::clone(self);
        let started = self.workers.runtime.spawn(async move { worker.ensure_running().await });
        let started = started.await.unwrap_or(Err(BackingOff(GRACE_PERIOD)));
        started.map_err(|BackingOff(delay)| Rejection::BackingOff(delay))
    }

    /// Starts the process; retries until it succeeds.
    pub async fn start_until_ready(self: Arc<Self>) -> Arc<Self> {
        while let Err(BackingOff(delay)) = self.ensure_running().await {
            sleep(delay).await;
        }
        self
    }

    /// Drains and stops the process. The routing table must no longer contain this version.
    pub fn retire(self: Arc<Self>) {
        let runtime = self.workers.runtime.clone();
        runtime.spawn(async move {
            sleep(GRACE_PERIOD).await;
            self.retired.store(true, Ordering::Relaxed);
            let process = self.current();
            if let Some(process) = process {
                let _ = timeout(DRAIN_TIMEOUT, process.wait_until_drained()).await;
                process.kill(ExitReason::Stopped);
            }
        });
    }

    fn current(&self) -> Option<Arc<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes an exited process. Returns whether it was still the current one.
    fn clear_process(&self, exited: &Arc<Process>) -> bool {
        let mut current = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|current| Arc::ptr_eq(current, exited)).is_some()
    }

    fn admit_if_running(&self) -> Option<RequestGuard> {
        self.current().as_ref().and_then(Process::admit_request)
    }

    async fn ensure_running(self: &Arc<Self>) -> Result<RequestGuard, BackingOff> {
        let mut restart = self.restart.lock().await;
        if let Some(guard) = self.admit_if_running() {
            return Ok(guard);
        }
        // A crash must be reported, and set the backoff, before the next start.
        if let Some(exiting) = self.current() {
            let reason = exiting.wait_for_exit().await;
            self.on_exit(&mut restart, &exiting, reason);
        }
        let now = Instant::now();
        if let Some(delay) = restart.retry_at.and_then(|at| at.checked_duration_since(now)) {
            return Err(BackingOff(delay));
        }
        if self.retired.load(Ordering::Relaxed) {
            return Err(BackingOff(GRACE_PERIOD));
        }
        let (process, guard) = match Process::start(&self.workers, &self.project, &self.index).await {
            Ok(process) => match process.admit_request() {
                Some(guard) => (process, guard),
                None => return Err(restart.back_off()),
            },
            Err(message) => return Err(self.on_start_failed(&mut restart, message)),
        };
        tracing::info!(project = self.project, took = ?process.started_at.elapsed(), "worker is ready");
        let (has_crashed, has_failed) = (std::mem::take(&mut restart.has_crashed), restart.last_error.take().is_some());
        if has_crashed || has_failed {
            self.report(DeploymentState::Serving, None);
        }
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&process));
        tokio::spawn(watch(Arc::clone(&process), self.workers.config.clone()));
        tokio::spawn(handle_exit(process, Arc::downgrade(self)));
        Ok(guard)
    }

    /// Handles a failed start. Reports each error once until it changes.
    fn on_start_failed(&self, restart: &mut RestartState, message: String) -> BackingOff {
        if restart.last_error.as_ref() != Some(&message) {
            self.report(DeploymentState::Failed, Some(message.clone()));
            restart.last_error = Some(message);
        }
        restart.back_off()
    }

    /// Handles the exit of the current process, once: both `ensure_running` and `handle_exit` wait for it.
    fn on_exit(&self, restart: &mut RestartState, process: &Arc<Process>, reason: ExitReason) {
        if self.clear_process(process)
            && let ExitReason::Crashed(message) = reason
        {
            self.on_crashed(restart, process, message);
        }
    }

    fn on_crashed(&self, restart: &mut RestartState, process: &Process, message: String) {
        if process.started_at.elapsed() >= HEALTHY_UPTIME {
            restart.backoff.reset();
        }
        restart.back_off();
        restart.has_crashed = true;
        if !self.retired.load(Ordering::Relaxed) {
            self.report(DeploymentState::Crashed, Some(message));
        }
    }

    fn report(&self, state: DeploymentState, message: Option<String>) {
        self.workers.observer.report_deployment(&self.project, self.version(), state, message);
    }
}

impl RestartState {
    fn back_off(&mut self) -> BackingOff {
        let delay = self.backoff.next_delay();
        self.retry_at = Some(Instant::now() + delay);
        BackingOff(delay)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(process) = self.current() {
            process.kill(ExitReason::Stopped);
        }
    }
}

async fn handle_exit(process: Arc<Process>, worker: Weak<Worker>) {
    let reason = process.wait_for_exit().await;
    let Some(worker) = worker.upgrade() else { return };
    let mut restart = worker.restart.lock().await;
    worker.on_exit(&mut restart, &process, reason);
}
