//! The memory of all worker processes, and its limit.
//!
//! If a process is about to start and does not fit, or if running processes grow above the limit, the node stops idle
//! processes. A stopped process starts again with its next request. If too little memory can be freed, no further process
//! starts.
//!
//! Each owner of projects has an equal share of the limit. An owner may use more while memory is free. If it is not, the
//! processes of the owner that uses the most above its share are stopped first, and of these the least recently used one.
//! A process with a request in flight is stopped only if its owner uses more than its share, for a start of an owner
//! that stays within its share. It is stopped after the idle processes of owners above their share, and before those of
//! other owners.
//!
//! Only the private memory of a process counts, which is free after its exit. The pages of the program `workerd` are
//! most of the resident memory of an idle process, but all processes share them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use prometheus::{IntCounter, IntGauge};

use super::config::Config;
use super::process::{ExitReason, Process};
use crate::metrics::Metrics;

/// The memory that a process counts with until it is measured. Few processes use more directly after their start.
const START_ALLOWANCE: i64 = 32 << 20;
/// The shortest time between two attempts to stop idle processes because the running ones exceed the limit.
const ENFORCE_INTERVAL: Duration = Duration::from_millis(50);

/// The memory that all worker processes may use, in bytes.
pub struct MemoryBudget {
    limit: i64,
    /// The smallest share of an owner: the memory of one process.
    min_share: i64,
    min_idle: Duration,
    in_use: IntGauge,
    stops: IntCounter,
    state: Mutex<State>,
}

struct State {
    /// The processes that can be stopped. Some may have exited.
    processes: Vec<Weak<Process>>,
    /// The owners of the memory in use.
    owners: HashMap<String, Weak<OwnerMemory>>,
    enforced_at: Instant,
}

/// The memory of all processes of one owner in bytes.
#[derive(Default)]
struct OwnerMemory(AtomicI64);

/// A process that can be stopped.
struct Candidate {
    process: Arc<Process>,
    is_busy: bool,
    last_request_at: Instant,
}

/// The memory of one process in bytes. Dropping this releases it.
pub struct MemoryShare {
    in_use: IntGauge,
    owner: Arc<OwnerMemory>,
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
            min_share: to_signed(config.memory),
            min_idle: config.min_idle,
            in_use: metrics.worker_memory.clone(),
            stops: metrics.worker_memory_stops.clone(),
            state: Mutex::new(State { processes: Vec::new(), owners: HashMap::new(), enforced_at: Instant::now() }),
        }
    }

    /// Reserves memory for a process of this owner that is about to start. Stops other processes if necessary. Returns
    /// `None`, and stops no process, if those that may be stopped use too little.
    pub fn reserve(&self, owner: &str) -> Option<MemoryShare> {
        let mut state = self.lock();
        let owner = state.owner(owner);
        let excess = self.in_use.get() + START_ALLOWANCE - self.limit;
        if excess > 0 {
            let (victims, excess) = self.select(&state, Some(&owner), excess);
            // A process can receive a request before it is stopped.
            if excess > 0 || !self.stop(&victims) {
                return None;
            }
        }
        self.in_use.add(START_ALLOWANCE);
        owner.add(START_ALLOWANCE);
        Some(MemoryShare { in_use: self.in_use.clone(), owner, bytes: Mutex::new(Some(START_ALLOWANCE)) })
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
            let (victims, _) = self.select(&state, None, self.in_use.get() - self.limit);
            self.stop(&victims);
        }
    }

    /// Selects processes that use `excess` bytes: first idle ones of owners above their share, then busy ones of these,
    /// then idle ones of other owners. For a start, `starting` is its owner; otherwise, selects only idle processes.
    /// Returns the rest of `excess`, which is positive only if the processes do not suffice.
    fn select(&self, state: &State, starting: Option<&Arc<OwnerMemory>>, mut excess: i64) -> (Vec<Candidate>, i64) {
        let owners = state.owners.values().filter(|owner| owner.strong_count() > 0).count();
        let share = (self.limit / i64::try_from(owners.max(1)).unwrap_or(i64::MAX)).max(self.min_share);
        let stays_within = starting.is_some_and(|owner| owner.bytes() + START_ALLOWANCE <= share);
        let processes = state.processes.iter().filter_map(Weak::upgrade);
        let mut candidates: Vec<_> = processes.filter_map(|process| self.candidate(process)).collect();
        let owner_of = |it: &Candidate| Arc::as_ptr(&it.process.memory_share.owner);
        // The memory of the owners after the stops.
        let mut rests: HashMap<_, _> =
            candidates.iter().map(|it| (owner_of(it), it.process.memory_share.owner.bytes())).collect();
        let mut victims = Vec::new();
        while excess > 0 {
            let order = |(at, it): (usize, &Candidate)| {
                let rest = rests.get(&owner_of(it)).copied().unwrap_or_default();
                let is_above = rest > share;
                let is_own = starting.is_none_or(|starting| Arc::as_ptr(starting) == owner_of(it));
                let may_stop = if it.is_busy { stays_within && is_above } else { is_own || stays_within || is_above };
                may_stop.then_some((!is_above, it.is_busy, Reverse(rest.max(share)), it.last_request_at, at))
            };
            let Some((.., at)) = candidates.iter().enumerate().filter_map(order).min() else { break };
            let victim = candidates.swap_remove(at);
            let bytes = victim.process.memory_share.bytes();
            *rests.entry(owner_of(&victim)).or_default() -= bytes;
            excess -= bytes;
            victims.push(victim);
        }
        (victims, excess)
    }

    /// Returns the process as a candidate, if it runs.
    fn candidate(&self, process: Arc<Process>) -> Option<Candidate> {
        let (is_busy, last_request_at) = process.last_use(self.min_idle)?;
        Some(Candidate { process, is_busy, last_request_at })
    }

    /// Stops these processes, except idle ones that received a request since. Returns whether all are stopped.
    fn stop(&self, victims: &[Candidate]) -> bool {
        let mut stopped = 0;
        for Candidate { process, is_busy, .. } in victims {
            let bytes = process.memory_share.bytes();
            if *is_busy {
                process.kill(ExitReason::Stopped);
            } else if !process.stop_if_idle(self.min_idle) {
                continue;
            }
            tracing::info!(project = process.project, bytes, is_busy, "stopped a worker to free memory");
            self.stops.inc();
            stopped += 1;
        }
        stopped == victims.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the memory of an owner.
    fn owner(&mut self, owner: &str) -> Arc<OwnerMemory> {
        if let Some(memory) = self.owners.get(owner).and_then(Weak::upgrade) {
            return memory;
        }
        self.owners.retain(|_, memory| memory.strong_count() > 0);
        let memory = Arc::new(OwnerMemory::default());
        self.owners.insert(owner.to_owned(), Arc::downgrade(&memory));
        memory
    }
}

impl OwnerMemory {
    fn add(&self, bytes: i64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn bytes(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl MemoryShare {
    /// Sets the measured memory. Has no effect after the release.
    pub fn set(&self, bytes: u64) {
        if let Some(current) = self.lock().as_mut() {
            let measured = to_signed(bytes);
            self.in_use.add(measured - *current);
            self.owner.add(measured - *current);
            *current = measured;
        }
    }

    /// Releases the memory when the process is stopped. The kernel frees it a moment later.
    pub fn release(&self) {
        if let Some(bytes) = self.lock().take() {
            self.in_use.sub(bytes);
            self.owner.add(-bytes);
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
