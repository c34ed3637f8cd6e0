//! A clock that a test sets forward, and the system's randomness.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use kernel::{Clock, Random, Time, World};

#[derive(Clone, Default)]
pub struct TestClock {
    ahead: Arc<AtomicI64>,
    stopped: Arc<OnceLock<Time>>,
}

impl TestClock {
    pub fn advance_days(&self, days: i64) {
        self.advance_seconds(days * 24 * 3600);
    }

    pub fn advance_seconds(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::SeqCst);
    }

    /// From now on no time passes but what is set forward.
    pub fn stop(&self) {
        self.stopped.get_or_init(|| World::system().now());
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        let now = self.stopped.get().copied().unwrap_or_else(|| World::system().now());
        now.plus_seconds(self.ahead.load(Ordering::SeqCst))
    }
}

impl Random for TestClock {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            chunk.copy_from_slice(&World::system().bytes::<32>()[..chunk.len()]);
        }
    }
}
