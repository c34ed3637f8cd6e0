//! A clock that stands until it is told to go on, and the system's randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kernel::{Clock, Random, Time, World};

/// A clock in the hands of a test. Clones are the same clock.
#[derive(Debug, Clone, Default)]
pub struct TestClock {
    seconds: Arc<AtomicI64>,
}

/// 2026-11-21T10:00:00Z, when every test begins.
const START: i64 = 1_795_255_200;

impl TestClock {
    /// Lets this much time pass.
    pub fn pass(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    /// A world with this clock.
    #[must_use]
    pub fn world(&self) -> World {
        World::new(self.clone(), self.clone())
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        Time::UNIX_EPOCH.plus_seconds(START + self.seconds.load(Ordering::SeqCst))
    }
}

impl Random for TestClock {
    fn fill(&self, bytes: &mut [u8]) {
        let world = World::system();
        bytes.iter_mut().for_each(|byte| [*byte] = world.bytes());
    }
}
