//! A clock that stands until it is told to go on, and the system's randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kernel::{Clock, Random, Time, World};

#[derive(Clone, Default)]
pub struct TestClock {
    seconds: Arc<AtomicI64>,
}

impl TestClock {
    pub fn pass(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    pub fn world(&self) -> World {
        World::new(self.clone(), self.clone())
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        let start: Time = serde_json::from_str("\"2026-11-21T10:00:00.000Z\"").unwrap();
        start.plus_seconds(self.seconds.load(Ordering::SeqCst))
    }
}

impl Random for TestClock {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            chunk.copy_from_slice(&World::system().bytes::<32>()[..chunk.len()]);
        }
    }
}
