//! Exponential backoff with jitter.

use std::time::Duration;

use uuid::Uuid;

const FIRST: Duration = Duration::from_millis(100);

/// Delays that double from 100 ms up to a maximum. Each delay is shortened by up to half at random, so that programs do
/// not reconnect to the control plane at the same time.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Creates a backoff that starts at the shortest delay.
    #[must_use]
    pub const fn up_to(max: Duration) -> Self {
        Self { next: FIRST, max }
    }

    /// Returns to the shortest delay.
    pub const fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.max);
        full - full / 512 * u32::from(random_byte())
    }
}

#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the programs depend on Postgres")]
fn random_byte() -> u8 {
    let [byte, ..] = Uuid::new_v4().into_bytes();
    byte
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let mut backoff = Backoff::up_to(Duration::from_secs(5));
        for full in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let delay = backoff.next_delay().as_millis();
            assert!(delay >= full / 2 && delay <= full, "{delay} of {full}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= FIRST);
    }
}
