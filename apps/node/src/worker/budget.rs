//! The memory of all worker processes, and its limit.
//!
//! If a process is about to start and does not fit, or if running processes grow above the limit, the node stops idle
//! processes, least recently used first. A stopped process starts again with its next request. A process with a request
//! in flight is never stopped for this reason. If too little memory can be freed, no further process starts.
//!
//! Only the private memory of a process counts, which is free after its exit. The pages of the program `workerd` are
//! most of the resident memory of an idle process, but all processes share them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use prometheus::{IntCounter, IntGauge};

use super::config::Config;
use super::process::Process;
use crate::metrics::Metrics;

/// The memory that a process counts with until it is measured. Few processes use more directly after their start.
const START_ALLOWANCE: i64 = 32 << 20;
/// The shortest time between two attempts to stop idle processes because the running ones exceed the limit.
const ENFORCE_INTERVAL: Duration = Duration::from_millis(50);

/// The memory that all worker processes may use, in bytes.
pub struct MemoryBudget {
    limit: i64,
    min_idle: Duration,
    in_use: IntGauge,
    stops: IntCounter,
    state: Mutex<State>,
}

struct State {
    /// The processes that can be stopped. Some may have exited.
    processes: Vec<Weak<Process>>,
    enforced_at: Instant,
}

/// The memory of one process in bytes. Dropping this releases it.
pub struct MemoryShare {
    in_use: IntGauge,
    /// `None` after the release.
    bytes: Mutex<Option<i64>>,
}

impl MemoryBudget {
    /// Creates the budget of a node without processes.
    pub fn new(config: &Config, metrics: &Metrics) -> Self {
        let limit = to_signed(config.total_memory);
        metrics.worker_memory_limit.set(limit);
        Self {
            limit,
            min_idle: config.min_idle,
            in_use: metrics.worker_memory.clone(),
            stops: metrics.worker_memory_stops.clone(),
            state: Mutex::new(State { processes: Vec::new(), enforced_at: Instant::now() }),
        }
    }

    /// Reserves memory for a process that is about to start. Stops idle processes if necessary. Returns `None`, and
    /// stops no process, if all idle processes together use too little.
    pub fn reserve(&self) -> Option<MemoryShare> {
        let state = self.lock();
        let excess = self.in_use.get() + START_ALLOWANCE - self.limit;
        if excess > 0 {
            let idle = self.idle_processes(&state);
            let available: i64 = idle.iter().map(|process| process.memory_share.bytes()).sum();
            // A process can receive a request before it is stopped.
            if available < excess || self.stop(&idle, excess) > 0 {
                return None;
            }
        }
        self.in_use.add(START_ALLOWANCE);
        Some(MemoryShare { in_use: self.in_use.clone(), bytes: Mutex::new(Some(START_ALLOWANCE)) })
    }

    /// Adds a process that has started.
    pub fn add(&self, process: &Arc<Process>) {
        let mut state = self.lock();
        state.processes.retain(|process| process.strong_count() > 0);
        state.processes.push(Arc::downgrade(process));
    }

    /// Stops idle processes if the running ones exceed the limit. Call this after each measurement.
    pub fn enforce(&self) {
        if self.in_use.get() <= self.limit {
            return;
        }
        let mut state = self.lock();
        if state.enforced_at.elapsed() >= ENFORCE_INTERVAL {
            state.enforced_at = Instant::now();
            self.stop(&self.idle_processes(&state), self.in_use.get() - self.limit);
        }
    }

    /// Returns the idle processes, least recently used first.
    fn idle_processes(&self, state: &State) -> Vec<Arc<Process>> {
        let idle_since = |process: Arc<Process>| Some((process.idle_since(self.min_idle)?, process));
        let mut idle: Vec<_> = state.processes.iter().filter_map(Weak::upgrade).filter_map(idle_since).collect();
        idle.sort_by_key(|(since, _)| *since);
        idle.into_iter().map(|(_, process)| process).collect()
    }

    /// Stops processes in this order until they have freed `excess` bytes. Returns the rest, which is positive only if
    /// the processes do not suffice.
    fn stop(&self, processes: &[Arc<Process>], mut excess: i64) -> i64 {
        for process in processes {
            if excess <= 0 {
                break;
            }
            let bytes = process.memory_share.bytes();
            if process.stop_if_idle(self.min_idle) {
                tracing::info!(project = process.project, bytes, "stopped an idle worker to free memory");
                self.stops.inc();
                excess -= bytes;
            }
        }
        excess
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryShare {
    /// Sets the measured memory. Has no effect after the release.
    pub fn set(&self, bytes: u64) {
        if let Some(current) = self.lock().as_mut() {
            let measured = to_signed(bytes);
            self.in_use.add(measured - *current);
            *current = measured;
        }
    }

    /// Releases the memory when the process is stopped. The kernel frees it a moment later.
    pub fn release(&self) {
        if let Some(bytes) = self.lock().take() {
            self.in_use.sub(bytes);
        }
    }

    fn bytes(&self) -> i64 {
        self.lock().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<i64>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.release();
    }
}

fn to_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
