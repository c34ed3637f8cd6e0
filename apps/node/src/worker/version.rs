//! One version of a project, which is its code and its environment, and the process of this version.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use daemon::Backoff;
use protocol::DeploymentState;
use semaphores::KeyedSemaphores;
use settings::rate_limit_key;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::process::{ExitReason, Process, RequestGuard};
use super::watchdog::watch;
use super::workers::Workers;
use crate::digest::Digest;
use crate::environment::CurrentEnvironment;
use crate::index::Index;
use crate::metrics::START_WITHOUT_MEMORY;

/// The longest delay before a crashing worker is restarted.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);
/// A crash after a longer uptime resets the backoff.
const HEALTHY_UPTIME: Duration = Duration::from_secs(5 * 60);
/// The delay before a version retires, because requests may still hold the previous routing table.
const GRACE_PERIOD: Duration = Duration::from_secs(1);
/// How long an old version may finish its requests in flight, and the work after its responses.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before another attempt to start a worker for which the node had no memory.
const MEMORY_RETRY_DELAY: Duration = Duration::from_secs(2);
/// How long a new version waits for memory before its deployment is reported as failed.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// The message for the project's members if the node has no memory for a new version.
const NO_MEMORY: &str = "The node has no memory for another worker, because the running ones are in use. It tries again \
    every few seconds. If this persists, contact the operator.";

/// A version of a project. Its process is started on demand, one start at a time, always with the current environment.
pub struct Worker {
    pub project: String,
    /// The owner whose shares the processes use that start from now on.
    owner: Mutex<String>,
    pub bundle: Digest,
    pub index: Arc<Index>,
    version: AtomicI32,
    /// The generation of the environment at the last start. A running process keeps its environment, so another
    /// environment requires another worker.
    generation: AtomicU64,
    workers: Arc<Workers>,
    process: Mutex<Option<Arc<Process>>>,
    /// The permits of the visitors' clients for requests in flight.
    clients: KeyedSemaphores<IpAddr>,
    /// The permits of requests that wait for the start of the process.
    waiting: Arc<Semaphore>,
    restart: AsyncMutex<RestartState>,
    /// Whether the last report says that the bundle is not running. All workers of one bundle share this flag, even
    /// with different environments.
    is_reported_down: Arc<AtomicBool>,
    has_failed_to_start: AtomicBool,
    retired: AtomicBool,
}

/// The state of restarts: backoff and last result.
struct RestartState {
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// The last reported start error.
    last_error: Option<String>,
}

/// The code of a version, without its environment.
#[derive(Clone, Copy)]
pub struct VersionCode<'a> {
    /// The project's id.
    pub project: &'a str,
    pub owner: &'a str,
    pub version: i32,
    pub bundle: Digest,
    pub index: &'a Arc<Index>,
}

/// Counts a request of a visitor in flight, as [`RequestGuard`] does, and as one of its client.
pub struct VisitorGuard {
    pub request: RequestGuard,
    _client: OwnedSemaphorePermit,
}

/// Why a request is not admitted.
pub enum Rejection {
    /// The worker is not running and is not restarted before this time has passed.
    BackingOff(Duration),
    /// The worker is not running, and too little memory is free to start it.
    NoMemory,
    /// The limit of requests in flight, or of requests that wait for a start, is reached.
    Full,
    /// The limit of requests in flight of one client is reached.
    ClientFull,
}

impl Rejection {
    /// Returns the time after which a retry can succeed.
    pub const fn retry_after(&self) -> Duration {
        match self {
            Self::BackingOff(delay) => *delay,
            Self::NoMemory => MEMORY_RETRY_DELAY,
            Self::Full | Self::ClientFull => Duration::ZERO,
        }
    }
}

impl Worker {
    /// Creates a worker without a process. `previous` ran the same bundle with another environment.
    pub fn new(
        workers: &Arc<Workers>,
        code: &VersionCode<'_>,
        environment: &CurrentEnvironment,
        previous: Option<&Self>,
    ) -> Arc<Self> {
        let backoff = Backoff::up_to(MAX_RESTART_DELAY);
        let is_reported_down = previous.map(|previous| Arc::clone(&previous.is_reported_down));
        Arc::new(Self {
            project: code.project.to_owned(),
            owner: Mutex::new(code.owner.to_owned()),
            bundle: code.bundle,
            index: Arc::clone(code.index),
            version: AtomicI32::new(code.version),
            generation: AtomicU64::new(environment.generation),
            workers: Arc::clone(workers),
            process: Mutex::default(),
            clients: KeyedSemaphores::new((workers.config.max_in_flight / 4).max(1)),
            waiting: Arc::new(Semaphore::new(workers.config.max_in_flight)),
            restart: AsyncMutex::new(RestartState { retry_at: None, backoff, last_error: None }),
            is_reported_down: is_reported_down.unwrap_or_default(),
            has_failed_to_start: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        })
    }

    /// Sets the version number and the owner. A new version may have the same bundle, and then uses the same processes.
    pub fn set_version(&self, code: &VersionCode<'_>) {
        self.version.store(code.version, Ordering::Relaxed);
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        code.owner.clone_into(&mut owner);
    }

    /// Returns the current version of the bundle.
    pub fn version(&self) -> i32 {
        self.version.load(Ordering::Relaxed)
    }

    /// Admits a request of a visitor as [`Worker::admit_request`] does. One client gets only a part of the requests in
    /// flight, so that it cannot make the site unavailable to others.
    pub async fn admit_visitor(self: &Arc<Self>, client: IpAddr) -> Result<VisitorGuard, Rejection> {
        let permit = self.clients.of(rate_limit_key(client)).try_acquire_owned();
        let permit = permit.map_err(|_| Rejection::ClientFull)?;
        let (request, client) = self.admit(permit).await?;
        Ok(VisitorGuard { request, _client: client })
    }

    /// Admits a request, and starts the process if it is not running. The start continues if the caller is cancelled.
    pub async fn admit_request(self: &Arc<Self>) -> Result<RequestGuard, Rejection> {
        self.admit(()).await.map(|(request, ())| request)
    }

    /// Admits a request as [`Worker::admit_request`] does. A request that waits for a start holds its `permit` until
    /// the wait ends, even if the caller is cancelled.
    async fn admit<P: Send + 'static>(self: &Arc<Self>, permit: P) -> Result<(RequestGuard, P), Rejection> {
        if let Some(admitted) = self.admit_if_running() {
            return admitted.map(|request| (request, permit));
        }
        let waiting = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| Rejection::Full)?;
        let worker = Arc::clone(self);
        let started = self.workers.runtime.spawn(async move {
            let _waiting = waiting;
            worker.ensure_running(true).await.map(|request| (request, permit))
        });
        started.await.unwrap_or(Err(Rejection::BackingOff(GRACE_PERIOD)))
    }

    /// Starts the process of a version that is not served yet; retries until it succeeds.
    pub async fn start_until_ready(self: Arc<Self>) -> Arc<Self> {
        let began = Instant::now();
        while let Err(rejection) = self.ensure_running(false).await {
            if matches!(rejection, Rejection::NoMemory) && began.elapsed() >= MEMORY_TIMEOUT {
                self.report_failure(&mut *self.restart.lock().await, NO_MEMORY.to_owned());
            }
            sleep(rejection.retry_after()).await;
        }
        self
    }

    /// Returns whether a process is running or starting.
    pub fn is_active(&self) -> bool {
        self.restart.try_lock().is_err() || self.current().is_some_and(|process| process.is_running())
    }

    /// Returns the timeout until the worker starts to respond, from the last chunk of the request body that it took.
    pub fn response_timeout(&self) -> Duration {
        self.workers.config.response_timeout
    }

    /// Returns the timeout of a call of `email()`.
    pub fn email_timeout(&self) -> Duration {
        self.workers.config.email_timeout
    }

    /// Returns the generation of the environment of the process, if it is running.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns whether the worker's environment is not the current one.
    pub fn is_outdated(&self, current: &CurrentEnvironment) -> bool {
        self.generation() != current.generation
    }

    /// Returns whether a start has failed.
    pub fn has_failed_to_start(&self) -> bool {
        self.has_failed_to_start.load(Ordering::Relaxed)
    }

    /// Waits until the process is idle, and stops it. Its code may still work after the last response. The routing table
    /// must no longer contain this version. [`Worker::stop`] ends the wait.
    pub fn retire(self: Arc<Self>) {
        let runtime = self.workers.runtime.clone();
        runtime.spawn(async move {
            sleep(GRACE_PERIOD).await;
            let process = {
                // A request may have started the process.
                let _start = self.restart.lock().await;
                self.retired.store(true, Ordering::Relaxed);
                self.current()
            };
            if let Some(process) = process {
                // Requests that take longer are aborted.
                let _ = timeout(DRAIN_TIMEOUT, process.wait_until_idle(self.workers.config.min_idle)).await;
                process.kill(ExitReason::Stopped);
            }
        });
    }

    /// Stops the process of a retired worker immediately. The requests in flight receive 502.
    pub fn stop(&self) {
        self.retired.store(true, Ordering::Relaxed);
        if let Some(process) = self.current() {
            process.kill(ExitReason::Stopped);
        }
    }

    fn current(&self) -> Option<Arc<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes an exited process. Returns whether it was still the current one.
    fn clear_process(&self, exited: &Arc<Process>) -> bool {
        let mut current = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|current| Arc::ptr_eq(current, exited)).is_some()
    }

    /// Admits a request. Returns `None` if the process is not running.
    fn admit_if_running(&self) -> Option<Result<RequestGuard, Rejection>> {
        let process = self.current()?;
        let admitted = process.admit_request().map(Ok);
        admitted.or_else(|| process.is_running().then_some(Err(Rejection::Full)))
    }

    async fn ensure_running(self: &Arc<Self>, is_served: bool) -> Result<RequestGuard, Rejection> {
        let mut restart = self.restart.lock().await;
        if let Some(admitted) = self.admit_if_running() {
            return admitted;
        }
        // A crash must be reported, and set the backoff, before the next start.
        if let Some(exiting) = self.current() {
            let reason = exiting.wait_for_exit().await;
            self.on_exit(&mut restart, &exiting, reason);
        }
        let now = Instant::now();
        if let Some(delay) = restart.retry_at.and_then(|at| at.checked_duration_since(now)) {
            return Err(Rejection::BackingOff(delay));
        }
        if self.retired.load(Ordering::Relaxed) {
            return Err(Rejection::BackingOff(GRACE_PERIOD));
        }
        // The start uses the current environment even after a crash: the environment of the previous process may
        // contain a value that was revoked since.
        let Some(environment) = self.workers.environments.get(&self.project) else {
            return Err(Rejection::BackingOff(GRACE_PERIOD));
        };
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(memory) = self.workers.budget.reserve(&owner) else {
            self.workers.metrics.count_start(START_WITHOUT_MEMORY);
            return Err(Rejection::NoMemory);
        };
        self.generation.store(environment.generation, Ordering::Relaxed);
        let started =
            Process::start(&self.workers, &owner, &self.project, &self.index, &environment.parts, memory).await;
        self.workers.metrics.count_start(if started.is_ok() { "ready" } else { "failed" });
        let (process, guard) = match started {
            Ok(process) => match process.admit_request() {
                Some(guard) => (process, guard),
                None => return Err(restart.back_off()),
            },
            Err(message) => return Err(self.on_start_failed(&mut restart, message)),
        };
        tracing::info!(project = self.project, took = ?process.started_at.elapsed(), "worker is ready");
        restart.last_error = None;
        if is_served {
            self.report_recovery();
        }
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&process));
        self.workers.budget.add(&process);
        tokio::spawn(watch(Arc::clone(&process), self.workers.config.clone(), Arc::clone(&self.workers.budget)));
        tokio::spawn(handle_exit(process, Arc::downgrade(self)));
        Ok(guard)
    }

    /// Reports that the version is served, if the last report says that it is not running.
    pub fn report_recovery(&self) {
        if self.is_reported_down.swap(false, Ordering::Relaxed) {
            self.report(DeploymentState::Serving, None);
        }
    }

    /// Handles a failed start.
    fn on_start_failed(&self, restart: &mut RestartState, message: String) -> Rejection {
        self.report_failure(restart, message);
        restart.back_off()
    }

    /// Reports why the worker does not start. Reports each error once until it changes.
    fn report_failure(&self, restart: &mut RestartState, message: String) {
        self.has_failed_to_start.store(true, Ordering::Relaxed);
        if restart.last_error.as_ref() != Some(&message) {
            self.is_reported_down.store(true, Ordering::Relaxed);
            self.report(DeploymentState::Failed, Some(message.clone()));
            restart.last_error = Some(message);
        }
    }

    /// Handles the exit of the current process. Both `ensure_running` and `handle_exit` wait for the exit, so only the
    /// first call has an effect.
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
        self.is_reported_down.store(true, Ordering::Relaxed);
        if !self.retired.load(Ordering::Relaxed) {
            self.report(DeploymentState::Crashed, Some(message));
        }
    }

    fn report(&self, state: DeploymentState, message: Option<String>) {
        self.workers.observer.report_deployment(&self.project, self.version(), state, message);
    }
}

impl RestartState {
    fn back_off(&mut self) -> Rejection {
        let delay = self.backoff.next_delay();
        self.retry_at = Some(Instant::now() + delay);
        Rejection::BackingOff(delay)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn handle_exit(process: Arc<Process>, worker: Weak<Worker>) {
    let reason = process.wait_for_exit().await;
    let Some(worker) = worker.upgrade() else { return };
    let mut restart = worker.restart.lock().await;
    worker.on_exit(&mut restart, &process, reason);
}
