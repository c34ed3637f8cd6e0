//! Pauses between attempts.

use std::time::Duration;

use crate::random;

const FIRST: Duration = Duration::from_millis(100);

/// Pauses that double from 100 ms up to a ceiling, each shortened by up to a half at random, so that the nodes that
/// lost the control plane at one moment do not come back at one moment.
pub struct Backoff {
    next: Duration,
    ceiling: Duration,
}

impl Backoff {
    /// Starts with the shortest pause.
    pub const fn up_to(ceiling: Duration) -> Self {
        Self { next: FIRST, ceiling }
    }

    /// Forgets the failures so far.
    pub const fn reset(&mut self) {
        self.next = FIRST;
    }

    /// The pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.ceiling);
        full - full / 512 * u32::from(random::byte())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_ceiling() {
        let mut backoff = Backoff::up_to(Duration::from_secs(5));
        for full in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let pause = backoff.pause().as_millis();
            assert!(pause >= full / 2 && pause <= full, "{pause} of {full}");
        }
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
