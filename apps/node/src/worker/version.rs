//! One version of one project's code, and whether it runs.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use protocol::DeploymentState;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{sleep, timeout};

use super::process::{Ending, Lease, Process};
use super::watchdog::watch;
use super::workers::Workers;
use crate::backoff::Backoff;
use crate::digest::Digest;
use crate::index::Index;

/// The longest pause before a worker that keeps dying is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Who lived this long did not die of being started.
const HEALTHY: Duration = Duration::from_secs(5 * 60);
/// A request may just have read from the table that this version is shown.
const GRACE: Duration = Duration::from_secs(1);
/// How long those that wait for an old version may go on to.
const DRAIN: Duration = Duration::from_secs(30);

/// A version; its process is started when it is needed, one start at a time.
pub struct Worker {
    pub project: String,
    pub bundle: Digest,
    pub index: Arc<Index>,
    version: AtomicI32,
    workers: Arc<Workers>,
    process: Mutex<Option<Arc<Process>>>,
    starting: AsyncMutex<Rest>,
    retired: AtomicBool,
}

/// What a start has to wait for.
struct Rest {
    until: Option<Instant>,
    backoff: Backoff,
    /// Whether it ended unexpectedly before.
    has_crashed: bool,
    /// What was told last of a start that failed.
    failed: Option<String>,
}

/// It does not run, and is not to be started before this time has passed.
pub struct Resting(pub Duration);

impl Worker {
    pub fn new(workers: &Arc<Workers>, project: &str, version: i32, bundle: Digest, index: Arc<Index>) -> Arc<Self> {
        let backoff = Backoff::up_to(LONGEST_PAUSE);
        Arc::new(Self {
            project: project.to_owned(),
            bundle,
            index,
            version: AtomicI32::new(version),
            workers: Arc::clone(workers),
            process: Mutex::default(),
            starting: AsyncMutex::new(Rest { until: None, backoff, has_crashed: false, failed: None }),
            retired: AtomicBool::new(false),
        })
    }

    /// The same bundle may be deployed again.
    pub fn set_version(&self, version: i32) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// The version that it is for now.
    pub fn version(&self) -> i32 {
        self.version.load(Ordering::Relaxed)
    }

    /// A hold on the process, which is started if none runs. The start goes on when nobody waits for it any more.
    pub async fn lease(self: &Arc<Self>) -> Result<Lease, Resting> {
        if self.current().is_some_and(|process| process.is_full()) {
            return Err(Resting(GRACE));
        }
        if let Some(lease) = self.running() {
            return Ok(lease);
        }
        let worker = Arc::clone(self);
        let started = self.workers.runtime.spawn(async move { worker.ensure().await });
        started.await.unwrap_or(Err(Resting(GRACE)))
    }

    /// Starts it, as often as it takes.
    pub async fn prepare(self: Arc<Self>) -> Arc<Self> {
        while let Err(Resting(pause)) = self.ensure().await {
            sleep(pause).await;
        }
        self
    }

    /// Ends it once those who wait for it have their answers. It is shown to nobody any more.
    pub fn retire(self: Arc<Self>) {
        let runtime = self.workers.runtime.clone();
        runtime.spawn(async move {
            sleep(GRACE).await;
            self.retired.store(true, Ordering::Relaxed);
            let process = self.current();
            if let Some(process) = process {
                let _ = timeout(DRAIN, process.drained()).await;
                process.kill(Ending::Done);
            }
        });
    }

    fn current(&self) -> Option<Arc<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it held is given back with it.
    fn forget(&self, ended: &Arc<Process>) {
        let mut current = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|current| Arc::ptr_eq(current, ended));
    }

    fn running(&self) -> Option<Lease> {
        self.current().as_ref().and_then(Process::lease)
    }

    async fn ensure(self: &Arc<Self>) -> Result<Lease, Resting> {
        let mut rest = self.starting.lock().await;
        if let Some(lease) = self.running() {
            return Ok(lease);
        }
        let now = Instant::now();
        if let Some(left) = rest.until.and_then(|until| until.checked_duration_since(now)) {
            return Err(Resting(left));
        }
        if self.retired.load(Ordering::Relaxed) {
            return Err(Resting(GRACE));
        }
        let (process, lease) = match Process::start(&self.workers, &self.project, &self.index).await {
            Ok(process) => match process.lease() {
                Some(lease) => (process, lease),
                None => return Err(rest.pause()),
            },
            Err(why) => return Err(self.failed(&mut rest, why)),
        };
        tracing::info!(project = self.project, took = ?process.began.elapsed(), "a worker answers");
        let (has_crashed, has_failed) = (std::mem::take(&mut rest.has_crashed), rest.failed.take().is_some());
        if has_crashed || has_failed {
            self.tell(DeploymentState::Serving, None);
        }
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&process));
        tokio::spawn(watch(Arc::clone(&process), self.workers.config.clone()));
        tokio::spawn(await_end(process, Arc::downgrade(self)));
        Ok(lease)
    }

    /// Told once for as long as it stays the same.
    fn failed(&self, rest: &mut Rest, why: String) -> Resting {
        if rest.failed.as_ref() != Some(&why) {
            self.tell(DeploymentState::Failed, Some(why.clone()));
            rest.failed = Some(why);
        }
        rest.pause()
    }

    async fn crashed(&self, process: &Process, why: String) {
        let mut rest = self.starting.lock().await;
        if process.began.elapsed() >= HEALTHY {
            rest.backoff.reset();
        }
        rest.pause();
        rest.has_crashed = true;
        if !self.retired.load(Ordering::Relaxed) {
            self.tell(DeploymentState::Crashed, Some(why));
        }
    }

    fn tell(&self, state: DeploymentState, message: Option<String>) {
        self.workers.observer.tell(&self.project, self.version(), state, message);
    }
}

impl Rest {
    fn pause(&mut self) -> Resting {
        let pause = self.backoff.pause();
        self.until = Some(Instant::now() + pause);
        Resting(pause)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(process) = self.current() {
            process.kill(Ending::Done);
        }
    }
}

async fn await_end(process: Arc<Process>, worker: Weak<Worker>) {
    let ending = process.ended().await;
    let Some(worker) = worker.upgrade() else { return };
    worker.forget(&process);
    if let Ending::Crashed(why) = ending {
        worker.crashed(&process, why).await;
    }
}
