//! The rate limits of the registrar: 20 requests in any second, and 3,000 in any hour.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest wait for a permit. A caller waits at most ten seconds for all its requests together.
const MAX_WAIT: Duration = Duration::from_secs(2);
const WINDOWS: [Window; 2] = [
    Window { length: Duration::from_secs(1), permits: 20, background_permits: 10 },
    Window { length: Duration::from_secs(3_600), permits: 3_000, background_permits: 2_000 },
];

/// The priority of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    /// A user waits for the response.
    Interactive,
    /// A background job. It leaves a part of each limit to interactive requests.
    Background,
}

/// A limit on the requests in any period of this length.
#[derive(Debug, Clone, Copy)]
struct Window {
    length: Duration,
    permits: usize,
    /// When the period contains this number of requests, background jobs wait.
    background_permits: usize,
}

/// The limiter of one process.
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    /// The times of the requests in the longest window, the oldest first.
    requests: Mutex<VecDeque<Instant>>,
}

impl RateLimiter {
    /// Waits for a permit, for at most [`MAX_WAIT`]. Returns whether it got one.
    pub(super) async fn acquire(&self, priority: Priority) -> bool {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            match self.try_acquire(Instant::now(), priority) {
                Ok(()) => return true,
                Err(free_at) if free_at > deadline => return false,
                Err(free_at) => sleep(free_at.saturating_duration_since(Instant::now())).await,
            }
        }
    }

    /// Takes a permit, or returns the time before which none is free.
    fn try_acquire(&self, now: Instant, priority: Priority) -> Result<(), Instant> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for Window { length, permits, background_permits } in WINDOWS {
            let permits = if priority == Priority::Background { background_permits } else { permits };
            let last = requests.len().checked_sub(permits).and_then(|index| requests.get(index));
            if let Some(free_at) = last.map(|last| *last + length)
                && free_at > now
            {
                return Err(free_at);
            }
        }
        requests.push_back(now);
        let [.., longest] = WINDOWS;
        if requests.len() > longest.permits {
            requests.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Priority, RateLimiter};

    /// Takes permits until none is free. Returns their number.
    fn drain(limiter: &RateLimiter, now: Instant, priority: Priority) -> usize {
        std::iter::repeat_with(|| limiter.try_acquire(now, priority)).take_while(Result::is_ok).count()
    }

    #[test]
    fn no_second_has_more_than_20_requests() {
        let (limiter, start) = (RateLimiter::default(), Instant::now());
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(drain(&limiter, start, Priority::Interactive), 20);
        assert_eq!(limiter.try_acquire(after(999), Priority::Interactive), Err(after(1_000)));
        assert_eq!(drain(&limiter, after(1_000), Priority::Interactive), 20);
        assert_eq!(drain(&limiter, after(1_500), Priority::Interactive), 0);
    }

    #[test]
    fn no_hour_has_more_than_3_000_requests() {
        let (limiter, start) = (RateLimiter::default(), Instant::now());
        let second = |seconds| start + Duration::from_secs(seconds);
        let taken = |range: std::ops::Range<u64>, priority| -> usize {
            range.map(|seconds| drain(&limiter, second(seconds), priority)).sum()
        };
        assert_eq!(taken(0..150, Priority::Interactive), 3_000);
        assert_eq!(taken(150..3_600, Priority::Interactive), 0);
        assert_eq!(taken(3_600..3_601, Priority::Interactive), 20);
    }

    #[test]
    fn background_jobs_leave_a_part_to_interactive_requests() {
        let (limiter, start) = (RateLimiter::default(), Instant::now());
        let second = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(drain(&limiter, start, Priority::Background), 10);
        assert_eq!(drain(&limiter, start, Priority::Interactive), 10);
        let background: usize = (1..300).map(|seconds| drain(&limiter, second(seconds), Priority::Background)).sum();
        assert_eq!(background, 1_980);
        assert_eq!(drain(&limiter, second(300), Priority::Interactive), 20);
    }

    #[tokio::test]
    async fn acquire_fails_when_no_permit_is_free_soon() {
        let limiter = RateLimiter::default();
        let start = Instant::now();
        for seconds in 0..150 {
            drain(&limiter, start + Duration::from_secs(seconds), Priority::Interactive);
        }
        assert!(!limiter.acquire(Priority::Interactive).await);
    }
}
