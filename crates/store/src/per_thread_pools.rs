//! The pool, divided among threads.
//!
//! The runtime that opens a connection also reads and writes its messages. If a thread uses a connection of another
//! thread, each statement wakes up both threads. On a machine with few cores, this costs more than the rest of the
//! request. So each server thread has its own connections, and background jobs share the others.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::QueueMode;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod};

use crate::config::{InvalidUrl, LOOKUP_OPTIONS, REQUEST_OPTIONS};
use crate::connect::Connector;
use crate::lookups::{Durations, LookupConnection};
use crate::{Config, Connection, Timeouts};

/// If there are per-thread pools, the shared pool gets one of this many connections.
const CONNECTIONS_PER_SHARED: usize = 4;

/// The minimum size of a per-thread pool. With fewer connections, threads share a pool.
const MIN_PER_THREAD: usize = 3;

/// The smallest number of lookups that have a mean.
const MIN_LOOKUPS: u64 = 10;

/// The value of [`ShortestWait`] while no wait has ended.
const NO_WAIT: u64 = u64::MAX;

thread_local! {
    /// The index of this thread's pool.
    static POOL_INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The usage of the pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolStatus {
    /// The maximum number of open connections.
    pub max: usize,
    /// Open connections.
    pub open: usize,
    /// Open connections that are not in use.
    pub idle: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
}

/// The connections of one thread.
struct ThreadConnections {
    pool: Pool<Connection>,
    lookups: LookupConnection,
}

/// The shortest of the waits that were recorded, in microseconds.
struct ShortestWait(AtomicU64);

pub(crate) struct PerThreadPools {
    /// The pool of all threads without a per-thread pool, such as those of background jobs.
    shared: Pool<Connection>,
    per_thread: Vec<ThreadConnections>,
    bound_threads: AtomicUsize,
    shortest_wait: ShortestWait,
    shortest_lookup_wait: ShortestWait,
}

impl PerThreadPools {
    pub(crate) fn new(config: &Config, connector: &Connector) -> Result<Self, InvalidUrl> {
        let connections = config.connections.max(1);
        let for_jobs = (connections / CONNECTIONS_PER_SHARED).max(1);
        let threads = config.threads.min((connections - for_jobs) / MIN_PER_THREAD);
        let shared = if threads == 0 { connections } else { for_jobs };
        let rest = connections - shared;
        let requests = connector.with_options(REQUEST_OPTIONS);
        let timeouts = config.timeouts;
        let per_thread = (0..threads).map(|thread| {
            let connections = rest / threads + usize::from(thread < rest % threads);
            let lookups = LookupConnection::new(requests.with_options(LOOKUP_OPTIONS), timeouts);
            Ok(ThreadConnections { pool: pool(&requests, connections - 1, timeouts)?, lookups })
        });
        let per_thread = per_thread.collect::<Result<_, _>>()?;
        let acquire = if threads == 0 { timeouts.acquire } else { timeouts.shared_acquire };
        let shared = pool(connector, shared, Timeouts { acquire, ..timeouts })?;
        let (shortest_wait, shortest_lookup_wait) = (ShortestWait::default(), ShortestWait::default());
        Ok(Self { shared, per_thread, bound_threads: AtomicUsize::new(0), shortest_wait, shortest_lookup_wait })
    }

    /// Assigns the next pool to this thread, unless it has one. Several threads may get the same pool.
    pub(crate) fn bind_to_thread(&self) {
        if POOL_INDEX.get().is_some() {
            return;
        }
        let index = self.bound_threads.fetch_add(1, Ordering::Relaxed).checked_rem(self.per_thread.len());
        POOL_INDEX.set(index);
    }

    /// Returns the number of pools that serve requests.
    pub(crate) fn count(&self) -> usize {
        self.per_thread.len().max(1)
    }

    /// Returns the index of this thread's pool.
    pub(crate) fn index() -> usize {
        POOL_INDEX.get().unwrap_or_default()
    }

    /// Returns the pool of this thread.
    pub(crate) fn current(&self) -> &Pool<Connection> {
        self.of_thread().map_or(&self.shared, |own| &own.pool)
    }

    /// Returns the connection of this thread for lookups. Returns `None` if the thread shares its pool.
    pub(crate) fn lookups(&self) -> Option<&LookupConnection> {
        self.of_thread().map(|own| &own.lookups)
    }

    fn of_thread(&self) -> Option<&ThreadConnections> {
        POOL_INDEX.get().and_then(|index| self.per_thread.get(index))
    }

    /// Records the wait of this thread for a connection of the pool.
    pub(crate) fn record_wait(&self, wait: Duration) {
        if self.serves_requests() {
            self.shortest_wait.record(wait);
        }
    }

    /// Records the wait of this thread for a lookup.
    pub(crate) fn record_lookup_wait(&self, wait: Duration) {
        self.shortest_lookup_wait.record(wait);
    }

    /// Returns the mean of the recorded lookups, and removes them. If there are fewer than [`MIN_LOOKUPS`], returns
    /// `None` and keeps them.
    pub(crate) fn take_mean_lookup(&self) -> Option<Duration> {
        let all = || self.per_thread.iter().map(|own| own.lookups.durations());
        if all().map(Durations::count).sum::<u64>() < MIN_LOOKUPS {
            return None;
        }
        let (sum, count) = all().map(Durations::take).fold((0, 0), |total, it| (total.0 + it.0, total.1 + it.1));
        Some(Duration::from_micros(sum / count.max(1)))
    }

    /// Returns the shortest wait that was recorded since the last call, if any. If requests wait for both the pool and
    /// lookups, the longer wait counts, because either queue can delay every request.
    pub(crate) fn take_shortest_wait(&self) -> Option<Duration> {
        self.shortest_wait.take().max(self.shortest_lookup_wait.take())
    }

    /// Returns whether this thread serves requests. If threads have their own connections, the others do not.
    fn serves_requests(&self) -> bool {
        POOL_INDEX.get().is_some() || self.per_thread.is_empty()
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let all = self.per_thread.iter().map(|own| &own.pool).chain([&self.shared]).map(Pool::status);
        all.fold(PoolStatus { max: 0, open: 0, idle: 0, waiting: 0 }, |sum, it| PoolStatus {
            max: sum.max + it.max_size,
            open: sum.open + it.size,
            idle: sum.idle + it.available,
            waiting: sum.waiting + it.waiting,
        })
    }
}

impl Default for ShortestWait {
    fn default() -> Self {
        Self(AtomicU64::new(NO_WAIT))
    }
}

impl ShortestWait {
    fn record(&self, wait: Duration) {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(NO_WAIT);
        // Most waits are not the shortest. They only read the value, which does not slow down other threads.
        if micros < self.0.load(Ordering::Relaxed) {
            self.0.fetch_min(micros, Ordering::Relaxed);
        }
    }

    /// Removes the value, if there is one.
    fn take(&self) -> Option<Duration> {
        let micros = self.0.swap(NO_WAIT, Ordering::Relaxed);
        (micros != NO_WAIT).then(|| Duration::from_micros(micros))
    }
}

fn pool(connector: &Connector, connections: usize, timeouts: Timeouts) -> Result<Pool<Connection>, InvalidUrl> {
    let mut manager = ManagerConfig::default();
    // The fast method sends no query: the client knows whether a connection is still open.
    manager.recycling_method = RecyclingMethod::Fast;
    let connector = connector.clone();
    manager.custom_setup = Box::new(move |_| {
        let connector = connector.clone();
        Box::pin(async move { connector.connect().await })
    });
    Pool::builder(AsyncDieselConnectionManager::new_with_config("", manager))
        .max_size(connections)
        // The connection that was used last has prepared most statements.
        .queue_mode(QueueMode::Lifo)
        .wait_timeout(Some(timeouts.acquire))
        .create_timeout(Some(timeouts.create))
        .recycle_timeout(Some(Duration::from_secs(1)))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| InvalidUrl(error.to_string()))
}
