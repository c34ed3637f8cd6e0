//! The delay between attempts.

use kernel::ClockRng;

const MAX_SECONDS: i64 = 300;

/// Returns the delay until the next attempt in milliseconds: exponential backoff with a jitter of ±20 %, so that
/// attempts that failed together are not repeated together.
pub(crate) fn backoff(clock_rng: &ClockRng, attempts: i32) -> i64 {
    let millis = 1000 * (1_i64 << attempts.clamp(0, 16)).min(MAX_SECONDS);
    let jitter = millis * 2 / 5;
    millis - jitter / 2 + jitter * i64::from(u16::from_be_bytes(clock_rng.bytes())) / i64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_a_limit_with_jitter() {
        let clock_rng = ClockRng::system();
        for (attempts, seconds) in [(1, 2), (2, 4), (8, 256), (9, 300), (1000, 300)] {
            for _ in 0..100 {
                let millis = backoff(&clock_rng, attempts);
                assert!((seconds * 800..=seconds * 1200).contains(&millis), "{attempts}: {millis}");
            }
        }
        assert!((0..100).any(|_| backoff(&clock_rng, 9) != backoff(&clock_rng, 9)));
    }
}
