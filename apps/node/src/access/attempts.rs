//! The rate limit of sign-in attempts.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);

/// Counts attempts per client address and host in fixed windows. Expired windows are dropped, so the memory is bounded.
pub struct AttemptLimiter {
    /// The limit per [`WINDOW`], address and host.
    max: u32,
    windows: Mutex<Windows>,
}

#[derive(Default)]
struct Windows {
    last_purge: Option<Instant>,
    /// The start of the window and the attempts in it.
    counts: HashMap<(IpAddr, String), (Instant, u32)>,
}

impl AttemptLimiter {
    pub fn new(max: u32) -> Self {
        Self { max, windows: Mutex::default() }
    }

    /// Records an attempt. Returns the time until the next window if the limit is exceeded.
    pub fn record(&self, from: IpAddr, host: &str, now: Instant) -> Result<(), Duration> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.last_purge.is_none_or(|last| now - last >= WINDOW) {
            windows.counts.retain(|_, (start, _)| now - *start < WINDOW);
            windows.last_purge = Some(now);
        }
        let (start, count) = windows.counts.entry((from, host.to_owned())).or_insert((now, 0));
        if now - *start >= WINDOW {
            (*start, *count) = (now, 0);
        }
        *count += 1;
        if *count > self.max { Err(WINDOW - (now - *start)) } else { Ok(()) }
    }

    /// Removes a recorded attempt.
    pub fn remove(&self, from: IpAddr, host: &str) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = windows.counts.get_mut(&(from, host.to_owned())) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_limited_per_address_and_host() {
        let (attempts, now) = (AttemptLimiter::new(10), Instant::now());
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        for _ in 0..10 {
            assert_eq!(attempts.record(one, "a", now), Ok(()));
        }
        let half = now + WINDOW / 2;
        assert_eq!(attempts.record(one, "a", half), Err(WINDOW / 2));
        assert_eq!((attempts.record(two, "a", half), attempts.record(one, "b", half)), (Ok(()), Ok(())));
        assert_eq!(attempts.record(one, "a", now + WINDOW), Ok(()));
        assert_eq!(attempts.windows.lock().unwrap().counts.len(), 3);
        assert_eq!(attempts.record(one, "a", now + WINDOW * 3), Ok(()));
        assert_eq!(attempts.windows.lock().unwrap().counts.len(), 1);
    }
}
