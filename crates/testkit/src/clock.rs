//! The test clock, which also provides the system's RNG.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use kernel::{Clock, ClockRng, Random, Time};

/// A clock that a test controls. Clones share one clock.
#[derive(Debug, Clone)]
pub struct TestClock {
    /// Unset while the clock follows the system's clock.
    stopped_at: Arc<OnceLock<Time>>,
    advanced: Arc<AtomicI64>,
    ahead: i64,
}

/// 2026-11-21T10:00:00Z.
const START: i64 = 1_795_255_200;

impl TestClock {
    /// Returns a clock that follows the system's clock, for tests of whole programs.
    #[must_use]
    pub fn running() -> Self {
        Self { stopped_at: Arc::default(), advanced: Arc::default(), ahead: 0 }
    }

    /// Stops the clock: from now on only `advance` moves it.
    pub fn stop(&self) {
        self.stopped_at.get_or_init(|| ClockRng::system().now());
    }

    /// Moves the clock forward.
    pub fn advance(&self, seconds: i64) {
        self.advanced.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Moves the clock forward by days of 24 hours.
    pub fn advance_days(&self, days: i64) {
        self.advance(days * 24 * 3600);
    }

    /// Returns a clock that stays this many seconds ahead of this one.
    #[must_use]
    pub fn ahead(&self, seconds: i64) -> Self {
        Self { ahead: self.ahead + seconds, ..self.clone() }
    }

    /// Returns this clock, with the system's RNG.
    #[must_use]
    pub fn clock_rng(&self) -> ClockRng {
        ClockRng::new(self.clone(), self.clone())
    }
}

/// A clock that is stopped at a fixed time.
impl Default for TestClock {
    fn default() -> Self {
        let start = Time::UNIX_EPOCH.plus_seconds(START);
        Self { stopped_at: Arc::new(start.into()), ..Self::running() }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        let now = self.stopped_at.get().copied().unwrap_or_else(|| ClockRng::system().now());
        now.plus_seconds(self.advanced.load(Ordering::SeqCst) + self.ahead)
    }
}

impl Random for TestClock {
    fn fill(&self, bytes: &mut [u8]) {
        let clock_rng = ClockRng::system();
        bytes.iter_mut().for_each(|byte| [*byte] = clock_rng.bytes());
    }
}
