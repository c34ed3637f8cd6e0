//! Enforces the minimum rate of a client, with the same rule as for uploads to the API. Only the time for which the
//! exchange waits for the client counts, so a slow git process or a slow disk does not end the exchange.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The initial and maximum time for which an exchange waits for its client. It does not include the minutes that git
/// may take to compress a pack before it sends the first byte.
const MAX_PATIENCE: Duration = Duration::from_secs(120);
/// The number of bytes that extend this time by one second.
const MIN_RATE: u32 = 16 * 1024;

/// The progress of a client.
pub struct Progress(Mutex<State>);

struct State {
    /// The remaining time for which the exchange may wait for the client.
    patience: Duration,
    /// The start of the current wait.
    since: Instant,
}

impl Progress {
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(State { patience: MAX_PATIENCE, since: now }))
    }

    /// Records bytes that the client sent or received. Subtracts the time that the exchange waited for these bytes from
    /// its remaining time, and adds the time that the bytes take at the minimum rate.
    pub fn count(&self, bytes: usize, now: Instant) {
        let mut state = self.state();
        let waited = now.saturating_duration_since(state.since);
        let gained = Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX) / MIN_RATE;
        state.patience = (state.patience.saturating_sub(waited) + gained).min(MAX_PATIENCE);
        state.since = now;
    }

    /// Starts a new wait for the client, because git made progress.
    pub fn restart(&self, now: Instant) {
        self.state().since = now;
    }

    /// Waits until the client is slower than the minimum rate.
    pub async fn wait_until_stalled(&self) {
        loop {
            let end = {
                let state = self.state();
                state.since + state.patience
            };
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the remaining time at this instant.
    fn left(progress: &Progress, now: Instant) -> Duration {
        let state = progress.state();
        (state.since + state.patience).saturating_duration_since(now)
    }

    #[test]
    fn single_bytes_are_no_progress() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let progress = Progress::new(start);
        progress.count(1, start + 100 * second);
        assert!(left(&progress, start + 100 * second) < 21 * second);
        progress.count(1, start + 119 * second);
        assert!(left(&progress, start + 121 * second).is_zero());
    }

    #[test]
    fn a_client_may_pause_again_after_progress() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let progress = Progress::new(start);
        progress.count(1, start + 110 * second);
        for _ in 0..120 {
            progress.count(MIN_RATE as usize, start + 110 * second);
        }
        assert_eq!(left(&progress, start + 110 * second), MAX_PATIENCE);
    }

    #[test]
    fn the_time_of_git_does_not_count() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let progress = Progress::new(start);
        progress.restart(start + 1000 * second);
        assert_eq!(left(&progress, start + 1000 * second), MAX_PATIENCE);
    }
}
