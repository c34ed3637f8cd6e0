//! How often a visitor may try to come in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(60);

/// Who tried where, and since when. It forgets what is past, so it holds no more than what comes in a period or two.
pub struct Attempts {
    /// In each [`PERIOD`], of each address and host.
    most: u32,
    periods: Mutex<Periods>,
}

#[derive(Default)]
struct Periods {
    /// When the last of them was begun.
    swept: Option<Instant>,
    tried: HashMap<(IpAddr, String), (Instant, u32)>,
}

impl Attempts {
    /// So many.
    pub fn of(most: u32) -> Self {
        Self { most, periods: Mutex::default() }
    }

    /// Counts an attempt; how long to wait when there were too many.
    pub fn count(&self, from: IpAddr, host: &str, now: Instant) -> Result<(), Duration> {
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        if periods.swept.is_none_or(|swept| now - swept >= PERIOD) {
            periods.tried.retain(|_, (since, _)| now - *since < PERIOD);
            periods.swept = Some(now);
        }
        let (since, tried) = periods.tried.entry((from, host.to_owned())).or_insert((now, 0));
        if now - *since >= PERIOD {
            (*since, *tried) = (now, 0);
        }
        *tried += 1;
        if *tried > self.most { Err(PERIOD - (now - *since)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_so_many_in_a_minute_at_each_host() {
        let (attempts, now) = (Attempts::of(10), Instant::now());
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        for _ in 0..10 {
            assert_eq!(attempts.count(one, "a", now), Ok(()));
        }
        let half = now + PERIOD / 2;
        assert_eq!(attempts.count(one, "a", half), Err(PERIOD / 2));
        assert_eq!((attempts.count(two, "a", half), attempts.count(one, "b", half)), (Ok(()), Ok(())));
        assert_eq!(attempts.count(one, "a", now + PERIOD), Ok(()));
        assert_eq!(attempts.periods.lock().unwrap().tried.len(), 3);
        assert_eq!(attempts.count(one, "a", now + PERIOD * 3), Ok(()));
        assert_eq!(attempts.periods.lock().unwrap().tried.len(), 1);
    }
}
