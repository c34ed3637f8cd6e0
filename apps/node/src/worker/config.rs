//! How workers are run.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What running workers takes.
#[derive(Debug, Clone)]
pub struct Config {
    /// The program `workerd`.
    pub workerd: PathBuf,
    /// This program, which becomes it; see [`super::launch`].
    pub launcher: PathBuf,
    /// How many bytes of memory a process may have in use.
    pub memory: u64,
    /// The user ids of workers, when the node may give them away.
    pub uids: UidRange,
    /// How long a worker is kept that nobody asks anything.
    pub idle: Duration,
}

/// User ids, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The least.
    pub first: u32,
    /// The greatest.
    pub last: u32,
}

impl FromStr for UidRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SHAPE: &str = "not two user ids like 200000-265535, the first at least 1000 and not above the last";
        let (first, last) = text.split_once('-').ok_or(SHAPE)?;
        let range = Self { first: first.parse().map_err(|_| SHAPE)?, last: last.parse().map_err(|_| SHAPE)? };
        // The greatest number means "no id" to the kernel.
        if range.first >= 1000 && range.first <= range.last && range.last < u32::MAX { Ok(range) } else { Err(SHAPE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_two_ends_in_order_and_leave_the_system_alone() {
        assert_eq!("200000-265535".parse(), Ok(UidRange { first: 200_000, last: 265_535 }));
        assert!("5000-5000".parse::<UidRange>().is_ok());
        for text in ["", "1000", "0-5000", "999-5000", "5001-5000", "5000-4294967295", "-1-5000", "5000-6000-7000"] {
            assert!(text.parse::<UidRange>().is_err(), "{text}");
        }
    }
}
