//! Rate limits of events in the memory of a program.

use std::time::{Duration, Instant};

/// A rate limiter (GCRA).
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// The average time between events.
    interval: Duration,
    /// The length of a burst: the events of this period can occur at once.
    burst: Duration,
    /// The earliest time at which the admitted events no longer exceed the average rate.
    idle_at: Instant,
}

impl Rate {
    #[must_use]
    pub const fn new(interval: Duration, burst: Duration, now: Instant) -> Self {
        Self { interval, burst, idle_at: now }
    }

    /// Returns whether the rate allows another event.
    #[must_use]
    pub fn admits(&self, now: Instant) -> bool {
        self.after_next(now).duration_since(now) <= self.burst
    }

    /// Returns whether the rate allows another event, and counts it if so.
    pub fn admit(&mut self, now: Instant) -> bool {
        let admitted = self.admits(now);
        if admitted {
            self.idle_at = self.after_next(now);
        }
        admitted
    }

    /// Returns whether the events do not exceed the average rate, so that the limiter equals a new one.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.idle_at <= now
    }

    fn after_next(&self, now: Instant) -> Instant {
        self.idle_at.max(now) + self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_recovers() {
        let mut now = Instant::now();
        let mut rate = Rate::new(Duration::from_secs(20), Duration::from_secs(60), now);
        assert_eq!([(); 4].map(|()| rate.admit(now)), [true, true, true, false]);
        assert!(!rate.admits(now) && !rate.is_idle(now));
        now += Duration::from_secs(21);
        assert_eq!([(); 2].map(|()| rate.admit(now)), [true, false]);
        assert!(rate.is_idle(now + Duration::from_secs(60)));
    }
}
