//! The limits on concurrent dumps and restores of a node.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

/// The largest number of dumps of the schedule and of exports that run at the same time.
const MAX_DUMPS: usize = 2;
/// The largest number of dumps of operations that run at the same time. All dumps and restores together may hold six
/// tenths of the lock table (the watchdog of the databases).
const MAX_OPERATIONS: usize = 2;
/// The largest number of long dumps that run at the same time. The other permits remain for short dumps and exports.
const MAX_LONG_DUMPS: usize = 1;
/// The largest number of restores that run at the same time.
const MAX_RESTORES: usize = 2;
/// How long exports can delay a scheduled dump. After this time, it queues like them.
const MAX_YIELD: Duration = Duration::from_secs(60);
/// How often a scheduled dump checks whether exports still wait.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Permits for dumps. Operations have their own, because a dump of an operation cannot be repeated later as a long one:
/// its database is offline. Exports, for which a user waits, go before the schedule.
pub struct Slots {
    /// The permits of the schedule and of exports.
    permits: Semaphore,
    operations: Semaphore,
    /// The permits of long dumps. Such a dump also needs one of `permits`.
    long: Semaphore,
    restores: Semaphore,
    /// The number of exports that wait.
    exports: AtomicUsize,
    /// Locked by the next scheduled dump while it waits for a permit. Other scheduled dumps wait for this lock, so an
    /// export waits for at most one scheduled dump.
    next_scheduled: Mutex<()>,
    max_yield: Duration,
}

/// One waiting export. It is counted until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Slots {
    pub const fn new() -> Self {
        Self::with_max_yield(MAX_YIELD)
    }

    const fn with_max_yield(max_yield: Duration) -> Self {
        Self {
            permits: Semaphore::const_new(MAX_DUMPS),
            operations: Semaphore::const_new(MAX_OPERATIONS),
            long: Semaphore::const_new(MAX_LONG_DUMPS),
            restores: Semaphore::const_new(MAX_RESTORES),
            exports: AtomicUsize::new(0),
            next_scheduled: Mutex::const_new(()),
            max_yield,
        }
    }

    /// Waits for a permit of an operation. Never returns `None`, because the semaphore is never closed.
    pub async fn acquire_operation(&self) -> Option<SemaphorePermit<'_>> {
        self.operations.acquire().await.ok()
    }

    /// Waits for a permit of an export. Never returns `None`, because the semaphore is never closed.
    pub async fn acquire_export(&self) -> Option<SemaphorePermit<'_>> {
        self.exports.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.exports);
        self.permits.acquire().await.ok()
    }

    /// Waits for a permit of a long dump. It must be acquired before the permit of the dump, so that only long dumps wait
    /// for it. Returns `None` if the dump is not a long one.
    pub async fn acquire_long(&self, is_long: bool) -> Option<SemaphorePermit<'_>> {
        if is_long { self.long.acquire().await.ok() } else { None }
    }

    /// Waits for a permit of a restore. Never returns `None`, because the semaphore is never closed.
    pub async fn acquire_restore(&self) -> Option<SemaphorePermit<'_>> {
        self.restores.acquire().await.ok()
    }

    /// Waits for a permit of a scheduled dump. While exports wait, this lets them go first, for at most `max_yield`.
    /// Never returns `None`, because the semaphore is never closed.
    pub async fn acquire_scheduled(&self) -> Option<SemaphorePermit<'_>> {
        let began = Instant::now();
        let _next = self.next_scheduled.lock().await;
        let may_queue = || self.exports.load(Ordering::Relaxed) == 0 || began.elapsed() >= self.max_yield;
        loop {
            if may_queue() {
                let permit = self.permits.acquire().await.ok()?;
                // An export may have begun to wait during the wait for this permit. Dropping the permit then lets the
                // export go first.
                if may_queue() {
                    return Some(permit);
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn two_dumps_run_at_a_time_and_exports_go_first() {
        let slots = Arc::new(Slots::new());
        let (first, second) = (slots.acquire_scheduled().await, slots.acquire_export().await);
        let (order, mut granted) = mpsc::unbounded_channel();
        for name in ["scheduled 1", "scheduled 2", "export"] {
            let (slots, order) = (Arc::clone(&slots), order.clone());
            tokio::spawn(async move {
                let permit = match name {
                    "export" => slots.acquire_export().await,
                    _ => slots.acquire_scheduled().await,
                };
                order.send(name).unwrap();
                // This task never returns its permit. The next task therefore gets a permit only when the test releases
                // one.
                permit.unwrap().forget();
            });
            // Lets this task begin to wait before the next one.
            tokio::task::yield_now().await;
        }
        assert!(granted.try_recv().is_err(), "a third dump runs");
        // Operations do not wait for other dumps, but for each other.
        let operations = [(); MAX_OPERATIONS].map(|()| slots.acquire_operation().now_or_never().flatten());
        assert!(operations.iter().all(Option::is_some), "an operation waits");
        assert!(slots.acquire_operation().now_or_never().is_none(), "a third operation runs");
        assert!(granted.try_recv().is_err());
        drop(operations);
        drop(first);
        assert_eq!(granted.recv().await, Some("export"));
        drop(second);
        assert_eq!(granted.recv().await.map(|name| name.starts_with("scheduled")), Some(true));
        assert!(granted.try_recv().is_err());
    }

    #[tokio::test]
    async fn long_dumps_leave_a_permit_to_short_ones() {
        let slots = Arc::new(Slots::new());
        let (order, mut granted) = mpsc::unbounded_channel();
        for (name, is_long) in [("long 1", true), ("long 2", true), ("short 1", false), ("short 2", false)] {
            let (slots, order) = (Arc::clone(&slots), order.clone());
            tokio::spawn(async move {
                let long = slots.acquire_long(is_long).await;
                let permit = slots.acquire_scheduled().await;
                order.send((name, permit.is_some(), long.is_some())).unwrap();
                // A long dump never ends.
                if is_long {
                    std::future::pending::<()>().await;
                }
            });
            tokio::task::yield_now().await;
        }
        assert_eq!(granted.recv().await, Some(("long 1", true, true)));
        assert_eq!(granted.recv().await, Some(("short 1", true, false)));
        assert_eq!(granted.recv().await, Some(("short 2", true, false)));
        assert!(granted.try_recv().is_err(), "a second long dump runs");
    }

    #[tokio::test]
    async fn schedule_does_not_wait_for_endless_exports() {
        let slots = Arc::new(Slots::with_max_yield(Duration::from_millis(50)));
        for _ in 0..5 {
            let slots = Arc::clone(&slots);
            tokio::spawn(async move {
                loop {
                    let permit = slots.acquire_export().await;
                    sleep(Duration::from_millis(5)).await;
                    drop(permit);
                }
            });
        }
        tokio::task::yield_now().await;
        for _ in 0..3 {
            // Without the limit `max_yield`, the scheduled dump would wait forever, because an export always waits.
            let permit = timeout(Duration::from_secs(60), slots.acquire_scheduled()).await;
            drop(permit.unwrap().unwrap());
        }
    }
}
