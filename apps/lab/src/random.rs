//! Random numbers that need not be reproducible.

use std::ops::Range;
use std::time::Duration;

use kernel::ClockRng;

/// Returns a number in a range that must not be empty.
pub fn number(range: Range<u64>) -> u64 {
    range.start + u64::from_be_bytes(ClockRng::system().bytes()) % (range.end - range.start)
}

/// Returns a time in a range in milliseconds that must not be empty.
pub fn millis(range: Range<u64>) -> Duration {
    Duration::from_millis(number(range))
}

/// Returns an index of a list with this length, which must not be 0.
pub fn index(length: usize) -> usize {
    usize::from_be_bytes(ClockRng::system().bytes()) % length
}
