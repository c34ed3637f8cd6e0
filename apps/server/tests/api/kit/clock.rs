//! A clock that a test sets forward, and the system's randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kernel::{Clock, Random, Time, World};

#[derive(Clone, Default)]
pub struct TestClock {
    ahead: Arc<AtomicI64>,
}

impl TestClock {
    pub fn advance_days(&self, days: i64) {
        self.ahead.fetch_add(days * 24 * 3600, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        World::system().now().plus_seconds(self.ahead.load(Ordering::SeqCst))
    }
}

impl Random for TestClock {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            chunk.copy_from_slice(&World::system().bytes::<32>()[..chunk.len()]);
        }
    }
}
