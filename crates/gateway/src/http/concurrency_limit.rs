//! The limit of concurrent requests, which adapts to the time that requests spend on Postgres.
//!
//! A queue that empties within a moment only absorbs a burst. A queue that never empties delays every request, and the
//! server completes no more of them. The shortest wait for a connection in a window tells them apart, as in CoDel
//! (RFC 8289). Requests also wait for the processor, which no queue of the server shows. The duration of lookups shows
//! it, because each of them does little work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use actix_web::http::Method;
use actix_web::web::Data;
use opentelemetry::metrics::Gauge;
use store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval};

use crate::config::MaxWaits;

/// The time between two adaptations. From the default limit, long waits lower the limit to the minimum within about a
/// second, so shorter bursts are served.
const WINDOW: Duration = Duration::from_millis(100);

/// The minimum for each pooled connection. It keeps the connections busy, and lets small bursts pass on a slow machine.
const MIN_PER_CONNECTION: usize = 4;

/// The minimum for each pooled connection while the limit is reached and lookups are slow.
const OVERLOAD_MIN_PER_CONNECTION: usize = 2;

/// While the limit is reached, it adapts until a lookup takes this time. With a lower target, the processors of a
/// machine that runs the server and Postgres are sometimes idle.
const LOOKUP_TARGET: Duration = Duration::from_millis(4);

/// The target is at least this multiple of the usual duration of a lookup, which is long if Postgres is far away.
const TARGET_FACTOR: f64 = 1.5;

/// After this number of windows at the minimum, the requests that began before have ended. Lookups that are still slow
/// wait for few others, so this is their usual duration.
const WINDOWS_AT_MINIMUM: usize = 10;

/// The share of a lowered limit that changes may use, equally divided among the pools. A change needs a connection for
/// several statements, and most reads share one. Without this bound, changes that wait for a connection would use up the
/// limit.
const CHANGES_SHARE: usize = 4;

static LIMIT: LazyLock<Gauge<u64>> = LazyLock::new(|| {
    let meter = opentelemetry::global::meter("svc");
    meter.u64_gauge("svc.http.concurrency.limit").with_description("Limit of concurrent requests").build()
});

/// The limit of concurrent requests.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    /// The permits of the configured maximum. Requests in progress hold them.
    permits: Arc<Semaphore>,
    /// The same number of permits for each pool of connections.
    pools: Vec<PoolPermits>,
    max: usize,
    min: usize,
    overload_min: usize,
    /// If every request of a window waits longer for a connection, the limit falls.
    max_wait: Duration,
    /// The limit of new requests.
    current: AtomicUsize,
    /// Whether a request was refused in the current window.
    has_refused: AtomicBool,
    /// Whether the limit was reached in the current window. The share of changes does not count.
    was_reached: AtomicBool,
    is_overloaded: AtomicBool,
}

/// The permits of requests that use one pool of connections.
#[derive(Debug)]
struct PoolPermits {
    requests: Arc<Semaphore>,
    /// Only changes in progress hold them.
    changes: Arc<Semaphore>,
}

/// The permits of a request in progress.
#[derive(Debug)]
pub(super) struct Permit {
    _change: Option<OwnedSemaphorePermit>,
    _pool: Option<OwnedSemaphorePermit>,
    // The last field is dropped last, so there are always enough permits in the pool.
    _server: OwnedSemaphorePermit,
}

/// The time that requests spent on Postgres in a window.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// The shortest wait for a connection, or `None` if requests wait and no wait ended.
    shortest_wait: Option<Duration>,
    /// The mean duration of a lookup, or `None` if there were few.
    mean_lookup: Option<Duration>,
}

/// The usual duration of a lookup. It is unknown and counts as zero until lookups are slow at the minimum.
#[derive(Debug, Default)]
struct UsualLookup {
    duration: Duration,
    /// The means of the latest windows, if they were at the minimum.
    at_minimum: Vec<Duration>,
}

impl UsualLookup {
    fn record(&mut self, mean: Duration, is_minimum: bool) {
        self.duration = self.duration.min(mean);
        if !is_minimum {
            self.at_minimum.clear();
            return;
        }
        self.at_minimum.push(mean);
        if self.at_minimum.len() == WINDOWS_AT_MINIMUM {
            self.duration = self.at_minimum.drain(..).min().unwrap_or_default();
        }
    }

    /// Returns the duration that the limit adapts to.
    fn target(&self) -> Duration {
        LOOKUP_TARGET.max(self.duration.mul_f64(TARGET_FACTOR))
    }
}

impl ConcurrencyLimit {
    /// Creates the limit, which begins at the maximum.
    pub(crate) fn new(max: usize, connections: usize, pools: usize) -> Self {
        let min = (connections * MIN_PER_CONNECTION).min(max);
        let overload_min = (connections * OVERLOAD_MIN_PER_CONNECTION).min(max);
        let permits = || Arc::new(Semaphore::new(max));
        Self {
            permits: permits(),
            pools: (0..pools.max(1)).map(|_| PoolPermits { requests: permits(), changes: permits() }).collect(),
            max,
            min,
            overload_min,
            max_wait: MaxWaits::default().connection,
            current: AtomicUsize::new(max),
            has_refused: AtomicBool::new(false),
            was_reached: AtomicBool::new(false),
            is_overloaded: AtomicBool::new(false),
        }
    }

    /// Sets the wait for a connection above which the limit falls.
    pub(crate) fn with_max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Returns whether a new request must be refused.
    pub(super) fn is_reached(&self, method: &Method) -> bool {
        let current = self.current();
        let in_progress = |permits: &Semaphore| self.max.saturating_sub(permits.available_permits());
        let (pool, count) = (self.pool(), self.pools.len());
        // Below the usual minimum, one thread could otherwise use the whole limit while the others are idle.
        let is_part_reached =
            |pool: &PoolPermits| current < self.min && in_progress(&pool.requests) >= current.div_ceil(count);
        if in_progress(&self.permits) >= current || pool.is_some_and(is_part_reached) {
            self.was_reached.store(true, Ordering::Relaxed);
            return true;
        }
        let max_changes = (current / CHANGES_SHARE / count).max(1);
        current < self.max && !method.is_safe() && pool.is_some_and(|it| in_progress(&it.changes) >= max_changes)
    }

    /// Acquires a permit. Only the maximum limits it, so that requests that have begun can continue.
    pub(super) fn acquire(&self, method: &Method) -> Option<Permit> {
        let acquire = |permits: &Arc<Semaphore>| Arc::clone(permits).try_acquire_owned().ok();
        let server = acquire(&self.permits)?;
        // Each pool has as many permits as the server.
        let pool = self.pool().and_then(|pool| acquire(&pool.requests));
        let change = self.pool().filter(|_| !method.is_safe()).and_then(|pool| acquire(&pool.changes));
        Some(Permit { _change: change, _pool: pool, _server: server })
    }

    /// Records that a new request was refused.
    pub(super) fn record_refusal(&self) {
        self.has_refused.store(true, Ordering::Relaxed);
    }

    /// Returns whether the limit was lowered in the last window and requests were refused. A lowered limit that all
    /// requests fit into is not an overload: on a slow machine, a few clients suffice to lower it.
    pub(super) fn is_overloaded(&self) -> bool {
        self.is_overloaded.load(Ordering::Relaxed)
    }

    /// Returns the permits of the pool of this thread.
    fn pool(&self) -> Option<&PoolPermits> {
        self.pools.get(Store::pool_index())
    }

    fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Adapts the limit to a window.
    fn adapt(&self, window: Window, usual_lookup: &mut UsualLookup) {
        let current = self.current();
        let has_refused = self.has_refused.swap(false, Ordering::Relaxed);
        self.is_overloaded.store(has_refused && current < self.max, Ordering::Relaxed);
        let was_reached = self.was_reached.swap(false, Ordering::Relaxed);
        let higher = (current + (current / 10).max(1)).min(self.max);
        let by_wait = match window.shortest_wait {
            None => current,
            Some(wait) if wait > self.max_wait => (current - current / 5).max(self.min.min(current)),
            Some(_) => higher,
        };
        let by_lookups = window.mean_lookup.map_or(higher, |mean| {
            usual_lookup.record(mean, was_reached && current <= self.overload_min);
            // A limit that all requests fit into delays none, even if lookups are slow.
            if was_reached { self.for_lookups(current, mean, usual_lookup.target()).min(higher) } else { higher }
        });
        self.current.store(by_wait.min(by_lookups), Ordering::Relaxed);
    }

    /// Returns the limit with which lookups would take the target, if their duration is proportional to the number of
    /// requests. Above the usual minimum, it is at least half of the current limit, and below, four fifths.
    fn for_lookups(&self, current: usize, mean: Duration, target: Duration) -> usize {
        let lowest = if current > self.min {
            (current / 2).max(self.min)
        } else {
            (current - (current / 5).max(1)).max(self.overload_min.min(current))
        };
        let proportional = current as f64 * target.as_secs_f64() / mean.as_secs_f64();
        // A conversion to an integer saturates.
        (proportional as usize).max(lowest)
    }

    /// Adapts the limit after each window.
    pub(crate) async fn adapt_to(limit: Data<Self>, store: Data<Store>) {
        let (mut windows, mut usual_lookup) = (interval(WINDOW), UsualLookup::default());
        windows.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            windows.tick().await;
            let mean_lookup = store.take_mean_lookup();
            let shortest_wait = store.take_shortest_wait();
            // Requests may wait while no wait ends, because no connection becomes free.
            let shortest_wait = shortest_wait.or_else(|| (store.status().waiting == 0).then_some(Duration::ZERO));
            limit.adapt(Window { shortest_wait, mean_lookup }, &mut usual_lookup);
            LIMIT.record(limit.current() as u64, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest wait that does not lower the limit.
    const MAX_WAIT: Duration = Duration::from_millis(10);

    const LONG: Duration = Duration::from_millis(11);

    const IDLE: Window = Window { shortest_wait: Some(Duration::ZERO), mean_lookup: None };

    /// Returns the limit after this number of windows with this shortest wait.
    fn adapt(limit: &ConcurrencyLimit, windows: usize, shortest_wait: Duration) -> usize {
        for _ in 0..windows {
            limit.adapt(Window { shortest_wait: Some(shortest_wait), ..IDLE }, &mut UsualLookup::default());
        }
        limit.current()
    }

    /// Returns the limit after this number of windows in which it was reached and lookups took this time.
    fn reach(limit: &ConcurrencyLimit, usual: &mut UsualLookup, windows: usize, mean_lookup: Duration) -> usize {
        for _ in 0..windows {
            let held: Vec<_> = (0..limit.current()).map(|_| limit.acquire(&Method::GET)).collect();
            assert!(limit.is_reached(&Method::GET));
            limit.record_refusal();
            drop(held);
            limit.adapt(Window { mean_lookup: Some(mean_lookup), ..IDLE }, usual);
        }
        limit.current()
    }

    #[test]
    fn limit_falls_to_its_minimum_while_every_request_waits() {
        let limit = ConcurrencyLimit::new(512, 16, 1);
        assert_eq!(adapt(&limit, 10, MAX_WAIT), 512);
        // A burst of half a second.
        assert_eq!(adapt(&limit, 5, LONG), 169);
        assert_eq!(adapt(&limit, 4, LONG), 71);
        assert_eq!(adapt(&limit, 100, Duration::from_secs(1)), 64);
    }

    #[test]
    fn limit_recovers_to_its_maximum() {
        let limit = ConcurrencyLimit::new(512, 1, 1);
        assert_eq!(adapt(&limit, 100, LONG), 4);
        assert_eq!(adapt(&limit, 2, Duration::ZERO), 6);
        assert_eq!(adapt(&limit, 100, MAX_WAIT), 512);
    }

    #[test]
    fn limit_does_not_change_while_requests_wait_and_no_connection_becomes_free() {
        let limit = ConcurrencyLimit::new(512, 16, 1);
        assert_eq!(adapt(&limit, 5, LONG), 169);
        limit.adapt(Window { shortest_wait: None, ..IDLE }, &mut UsualLookup::default());
        assert_eq!(limit.current(), 169);
    }

    #[test]
    fn slow_lookups_lower_the_limit_only_while_it_is_reached() {
        let (limit, mut usual) = (ConcurrencyLimit::new(512, 14, 1), UsualLookup::default());
        let slow = Duration::from_millis(30);
        // The share of changes refuses a request, but the limit has room.
        limit.record_refusal();
        limit.adapt(Window { mean_lookup: Some(slow), ..IDLE }, &mut usual);
        assert_eq!(limit.current(), 512);
        assert_eq!(reach(&limit, &mut usual, 3, slow), 64);
        assert_eq!(reach(&limit, &mut usual, 1, slow), 56);
        assert_eq!(reach(&limit, &mut usual, 1, slow), 45);
        assert_eq!(reach(&limit, &mut usual, 3, slow), 28);
        assert!(limit.is_overloaded());
        // Long waits for a connection do not lower a limit below their minimum, and do not raise it.
        assert_eq!(adapt(&limit, 10, LONG), 28);
        assert_eq!(adapt(&limit, 100, Duration::ZERO), 512);
    }

    #[test]
    fn limit_adapts_to_the_duration_of_lookups() {
        let (limit, mut usual) = (ConcurrencyLimit::new(512, 16, 1), UsualLookup::default());
        assert_eq!(reach(&limit, &mut usual, 1, LOOKUP_TARGET * 4 / 3), 384);
        assert_eq!(reach(&limit, &mut usual, 1, LOOKUP_TARGET), 384);
        assert_eq!(reach(&limit, &mut usual, 1, LOOKUP_TARGET / 2), 422);
        assert_eq!(reach(&limit, &mut usual, 1, Duration::ZERO), 464);
        assert_eq!(reach(&limit, &mut usual, 100, LOOKUP_TARGET / 2), 512);
        let smallest = ConcurrencyLimit::new(1, 16, 1);
        assert_eq!(reach(&smallest, &mut usual, 100, LOOKUP_TARGET * 2), 1);
    }

    #[test]
    fn lookups_that_are_slow_at_the_minimum_do_not_lower_the_limit() {
        let (limit, mut usual) = (ConcurrencyLimit::new(512, 16, 1), UsualLookup::default());
        // Postgres is far away.
        let far = Duration::from_millis(200);
        assert_eq!(reach(&limit, &mut usual, 7, far), 32);
        assert_eq!(reach(&limit, &mut usual, WINDOWS_AT_MINIMUM - 1, far), 32);
        assert_eq!(reach(&limit, &mut usual, 100, far), 512);
        assert_eq!(usual.target(), far * 3 / 2);
        assert_eq!(reach(&limit, &mut usual, 1, far * 3), 256);
        // It is near again.
        usual.record(LOOKUP_TARGET / 10, false);
        assert_eq!(usual.target(), LOOKUP_TARGET);
    }

    #[test]
    fn overload_needs_a_lowered_limit_that_refuses_requests() {
        let limit = ConcurrencyLimit::new(512, 16, 1);
        limit.record_refusal();
        adapt(&limit, 1, LONG);
        assert!(!limit.is_overloaded());
        adapt(&limit, 1, LONG);
        assert!(!limit.is_overloaded());
        limit.record_refusal();
        adapt(&limit, 1, Duration::ZERO);
        assert!(limit.is_overloaded());
        adapt(&limit, 1, LONG);
        assert!(!limit.is_overloaded());
    }

    #[test]
    fn minimum_is_at_most_the_configured_maximum() {
        let limit = ConcurrencyLimit::new(1, 16, 1);
        assert_eq!(adapt(&limit, 100, LONG), 1);
        assert_eq!(adapt(&limit, 100, Duration::ZERO), 1);
        assert!(!limit.is_reached(&Method::GET));
    }

    #[test]
    fn requests_that_have_begun_are_limited_only_by_the_maximum() {
        let limit = ConcurrencyLimit::new(6, 1, 1);
        let mut permits: Vec<_> = (0..5).map(|_| limit.acquire(&Method::GET).expect("a permit")).collect();
        assert!(!limit.is_reached(&Method::GET));
        assert_eq!(adapt(&limit, 10, LONG), 4);
        assert!(limit.is_reached(&Method::GET));
        // A request that waits for its body releases its permit, and acquires it again.
        permits.pop();
        assert!(limit.is_reached(&Method::GET));
        permits.push(limit.acquire(&Method::GET).expect("a permit above the current limit"));
        permits.push(limit.acquire(&Method::GET).expect("the last permit"));
        assert!(limit.acquire(&Method::GET).is_none());
        permits.truncate(3);
        assert!(!limit.is_reached(&Method::GET));
    }

    #[test]
    fn changes_of_a_pool_use_its_part_of_their_share() {
        let limit = ConcurrencyLimit::new(512, 4, 2);
        assert_eq!(adapt(&limit, 100, LONG), 16);
        let changes: Vec<_> = (0..2).map(|_| limit.acquire(&Method::POST).expect("a permit")).collect();
        assert!(limit.is_reached(&Method::POST));
        assert!(!limit.is_reached(&Method::GET));
        drop(changes);
        assert!(!limit.is_reached(&Method::POST));
    }

    #[test]
    fn requests_of_a_pool_use_their_part_of_a_limit_below_the_minimum() {
        let (limit, mut usual) = (ConcurrencyLimit::new(512, 4, 2), UsualLookup::default());
        assert_eq!(adapt(&limit, 100, LONG), 16);
        let requests: Vec<_> = (0..8).map(|_| limit.acquire(&Method::GET).expect("a permit")).collect();
        assert!(!limit.is_reached(&Method::GET));
        assert_eq!(reach(&limit, &mut usual, 1, LOOKUP_TARGET * 8 / 7), 14);
        assert!(limit.is_reached(&Method::GET));
        drop(requests);
        assert!(!limit.is_reached(&Method::GET));
    }

    #[test]
    fn changes_use_a_quarter_of_a_lowered_limit() {
        let limit = ConcurrencyLimit::new(512, 2, 1);
        let mut changes: Vec<_> = (0..100).map(|_| limit.acquire(&Method::POST).expect("a permit")).collect();
        assert!(!limit.is_reached(&Method::DELETE));
        assert_eq!(adapt(&limit, 100, LONG), 8);
        changes.truncate(2);
        assert!(limit.is_reached(&Method::DELETE));
        assert!(!limit.is_reached(&Method::GET));
        changes.pop();
        assert!(!limit.is_reached(&Method::DELETE));
        let reads: Vec<_> = (0..7).map(|_| limit.acquire(&Method::GET).expect("a permit")).collect();
        assert!(limit.is_reached(&Method::DELETE));
        drop((reads, changes));
        assert_eq!(adapt(&limit, 100, Duration::ZERO), 512);
        assert!(!limit.is_reached(&Method::POST));
    }
}
