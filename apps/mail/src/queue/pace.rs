//! The number of concurrent hand-overs.

use std::time::Duration;

use daemon::Backoff;
use tokio::time::Instant;

/// The maximum number of concurrent hand-overs. The control plane writes the concurrent ones of a project in one
/// transaction.
const MAX_CONCURRENT: usize = 32;
const INITIAL_CONCURRENT: usize = 8;
/// The maximum delay between two attempts while the control plane is unavailable.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// The availability of the control plane during an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    /// The attempt ended without a request to the control plane.
    Unknown,
    /// The control plane responded, even if it rejected the mail.
    Available,
    /// The control plane did not respond, or responded that it cannot process requests.
    Unavailable,
}

/// The number of failures before an attempt by which the control plane counted as unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period(u64);

/// Permits attempts. It adapts their number to the capacity of the control plane: a failure halves the limit, and after
/// as many successes as the limit, the limit grows by one. If an attempt fails while the limit is one, the control plane
/// counts as unavailable, and the next attempt is delayed: the attempts of all waiting mails would cost the node as much
/// as the reception of mail, and delay the recovery of the control plane.
///
/// Attempts from before this failure count no longer, and their failures have no effect. They can wait for their timeouts
/// on a broken connection, while the control plane is already available again.
pub struct Pace {
    limit: usize,
    /// The attempts of this period that are in progress.
    running: usize,
    period: Period,
    /// The number of successes since the last change of the limit.
    successes: usize,
    backoff: Backoff,
    /// The end of the delay.
    resumes_at: Instant,
}

impl Pace {
    pub fn new() -> Self {
        let (backoff, resumes_at) = (Backoff::up_to(MAX_DELAY), Instant::now());
        Self { limit: INITIAL_CONCURRENT, running: 0, period: Period(0), successes: 0, backoff, resumes_at }
    }

    /// Returns the time of the next attempt, which may be in the past. Returns `None` until an attempt ends.
    pub fn next_attempt(&self) -> Option<Instant> {
        (self.running < self.limit).then_some(self.resumes_at)
    }

    /// Records that an attempt starts. Returns its period.
    pub const fn start(&mut self) -> Period {
        self.running += 1;
        self.period
    }

    /// Records that an attempt of this period ended.
    pub fn end(&mut self, period: Period, availability: Availability, now: Instant) {
        let is_current = period == self.period;
        if is_current {
            self.running = self.running.saturating_sub(1);
        }
        match availability {
            Availability::Available => self.succeed(now),
            Availability::Unavailable if is_current => self.fail(now),
            Availability::Unavailable | Availability::Unknown => {}
        }
    }

    fn succeed(&mut self, now: Instant) {
        self.backoff.reset();
        self.resumes_at = now;
        self.successes += 1;
        if self.successes >= self.limit {
            self.successes = 0;
            self.limit = (self.limit + 1).min(MAX_CONCURRENT);
        }
    }

    fn fail(&mut self, now: Instant) {
        if self.limit == 1 {
            self.resumes_at = now + self.backoff.next_delay();
            self.period.0 += 1;
            self.running = 0;
        }
        self.successes = 0;
        self.limit = (self.limit / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts all attempts that are permitted at this time.
    fn start_all(pace: &mut Pace, now: Instant) -> Vec<Period> {
        let mut started = Vec::new();
        while pace.next_attempt().is_some_and(|at| at <= now) {
            started.push(pace.start());
        }
        started
    }

    fn end_all(pace: &mut Pace, started: Vec<Period>, availability: Availability, now: Instant) {
        for period in started {
            pace.end(period, availability, now);
        }
    }

    #[test]
    fn limit_follows_the_capacity() {
        let (mut pace, now) = (Pace::new(), Instant::now());
        for _ in 0..100 {
            let started = start_all(&mut pace, now);
            end_all(&mut pace, started, Availability::Available, now);
        }
        let mut started = start_all(&mut pace, now);
        assert_eq!(started.len(), MAX_CONCURRENT);
        let failed = started.split_off(MAX_CONCURRENT - 2);
        end_all(&mut pace, failed, Availability::Unavailable, now);
        end_all(&mut pace, started, Availability::Unknown, now);
        let started = start_all(&mut pace, now);
        assert_eq!(started.len(), MAX_CONCURRENT / 4);
        end_all(&mut pace, started, Availability::Available, now);
        assert_eq!(start_all(&mut pace, now).len(), MAX_CONCURRENT / 4 + 1);
    }

    #[test]
    fn attempts_are_delayed_while_all_fail() {
        let (mut pace, mut now) = (Pace::new(), Instant::now());
        for _ in 0..10 {
            let started = start_all(&mut pace, now);
            end_all(&mut pace, started, Availability::Unavailable, now);
            assert!(start_all(&mut pace, now).is_empty());
            now += MAX_DELAY;
        }
        let started = start_all(&mut pace, now);
        assert_eq!(started.len(), 1);
        end_all(&mut pace, started, Availability::Available, now);
        assert_eq!(start_all(&mut pace, now).len(), 2);
    }

    #[test]
    fn attempts_from_before_an_outage_delay_no_others() {
        let (mut pace, now) = (Pace::new(), Instant::now());
        let mut started = start_all(&mut pace, now);
        let stuck = started.split_off(started.len() / 2);
        end_all(&mut pace, started, Availability::Unavailable, now);
        let now = now + MAX_DELAY;
        let started = start_all(&mut pace, now);
        assert_eq!(started.len(), 1);
        end_all(&mut pace, stuck, Availability::Unavailable, now);
        assert!(start_all(&mut pace, now).is_empty(), "the new attempt is still in progress");
        end_all(&mut pace, started, Availability::Available, now);
        assert_eq!(start_all(&mut pace, now).len(), 2);
    }
}
