//! The limit of concurrent requests, which adapts to the time that requests wait for a connection to Postgres.
//!
//! A queue that empties within a moment only absorbs a burst. A queue that never empties delays every request, and the
//! server completes no more of them. The shortest wait of a window tells them apart, as in CoDel (RFC 8289).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use actix_web::http::Method;
use actix_web::web::Data;
use opentelemetry::metrics::Gauge;
use store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval};

/// The time between two adaptations. From the default limit, an overload lowers the limit to the minimum within about a
/// second, so shorter bursts are served.
const WINDOW: Duration = Duration::from_millis(100);

/// If every request of a window waits longer for a connection, the limit falls.
const MAX_SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// The minimum of the limit for each pooled connection. It keeps the connections busy, and lets small bursts pass on a
/// slow machine.
const MIN_PER_CONNECTION: usize = 4;

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
    /// The same number of permits for each pool of connections. Only changes in progress hold them.
    changes: Vec<Arc<Semaphore>>,
    max: usize,
    min: usize,
    /// The limit of new requests.
    current: AtomicUsize,
    /// Whether a request was refused in the current window.
    has_refused: AtomicBool,
    is_overloaded: AtomicBool,
}

/// The permit of a request in progress.
#[derive(Debug)]
pub(super) struct Permit {
    _request: OwnedSemaphorePermit,
    _change: Option<OwnedSemaphorePermit>,
}

impl ConcurrencyLimit {
    /// Creates the limit, which begins at the maximum.
    pub(crate) fn new(max: usize, connections: usize, pools: usize) -> Self {
        let min = (connections * MIN_PER_CONNECTION).min(max);
        let permits = || Arc::new(Semaphore::new(max));
        Self {
            permits: permits(),
            changes: (0..pools.max(1)).map(|_| permits()).collect(),
            max,
            min,
            current: AtomicUsize::new(max),
            has_refused: AtomicBool::new(false),
            is_overloaded: AtomicBool::new(false),
        }
    }

    /// Returns whether a new request must be refused.
    pub(super) fn is_reached(&self, method: &Method) -> bool {
        let current = self.current();
        let in_progress = |permits: &Semaphore| self.max.saturating_sub(permits.available_permits());
        let is_lowered = current < self.max;
        let max_changes = (current / CHANGES_SHARE / self.changes.len()).max(1);
        in_progress(&self.permits) >= current
            || is_lowered && !method.is_safe() && self.changes().is_some_and(|it| in_progress(it) >= max_changes)
    }

    /// Acquires a permit. Only the maximum limits it, so that requests that have begun can continue.
    pub(super) fn acquire(&self, method: &Method) -> Option<Permit> {
        let acquire = |permits: &Arc<Semaphore>| Arc::clone(permits).try_acquire_owned().ok();
        let request = acquire(&self.permits)?;
        // There are as many permits for changes as for requests.
        let change = if method.is_safe() { None } else { self.changes().and_then(acquire) };
        Some(Permit { _request: request, _change: change })
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

    /// Returns the permits for changes that use the pool of this thread.
    fn changes(&self) -> Option<&Arc<Semaphore>> {
        self.changes.get(Store::pool_index()).or_else(|| self.changes.first())
    }

    fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Adapts the limit to the shortest wait of a window.
    fn adapt(&self, shortest_wait: Duration) {
        let current = self.current();
        let has_refused = self.has_refused.swap(false, Ordering::Relaxed);
        self.is_overloaded.store(has_refused && current < self.max, Ordering::Relaxed);
        let next =
            if shortest_wait > MAX_SHORTEST_WAIT { current - current / 5 } else { current + (current / 10).max(1) };
        self.current.store(next.clamp(self.min, self.max), Ordering::Relaxed);
    }

    /// Adapts the limit after each window.
    pub(crate) async fn adapt_to(limit: Data<Self>, store: Data<Store>) {
        let mut windows = interval(WINDOW);
        windows.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            windows.tick().await;
            match store.take_shortest_wait() {
                Some(wait) => limit.adapt(wait),
                // No connection became free for these requests, so their wait is unknown.
                None if store.status().waiting > 0 => {}
                None => limit.adapt(Duration::ZERO),
            }
            LIMIT.record(limit.current() as u64, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(11);

    /// Returns the limit after this number of windows with this shortest wait.
    fn adapt(limit: &ConcurrencyLimit, windows: usize, shortest_wait: Duration) -> usize {
        for _ in 0..windows {
            limit.adapt(shortest_wait);
        }
        limit.current()
    }

    #[test]
    fn limit_falls_to_its_minimum_while_every_request_waits() {
        let limit = ConcurrencyLimit::new(512, 16, 1);
        assert_eq!(adapt(&limit, 10, MAX_SHORTEST_WAIT), 512);
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
        assert_eq!(adapt(&limit, 100, MAX_SHORTEST_WAIT), 512);
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
