//! The wall-clock time, for values that outlive the process. All other code uses `Instant`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};

/// Returns the time since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the wall-clock time as a value for Postgres.
pub fn now() -> SystemTime {
    UNIX_EPOCH + since_epoch()
}

/// Returns a time in the format of RFC 3339, in UTC and with milliseconds.
pub fn rfc3339(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The largest difference at which two clocks still agree.
const MAX_DIFFERENCE: Duration = Duration::from_secs(60 * 60);

/// The time of the control plane: the time of its last response, plus the time that has passed since on the monotonic
/// clock. The node compares its own wall clock and the clock of Postgres with this time: a clock that is wrongly set
/// forward would end every retention too early. Clones share the time.
#[derive(Debug, Clone, Default)]
pub struct ReferenceClock(Arc<Mutex<Option<(Instant, SystemTime)>>>);

impl ReferenceClock {
    /// Records the time of a response.
    pub fn observe(&self, time: SystemTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), time));
    }

    /// Returns whether the control plane has responded.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns whether another clock, which shows `time` now, differs from this clock by less than an hour. Returns
    /// false before the first response.
    #[must_use]
    pub fn agrees_with(&self, time: SystemTime) -> bool {
        let reference = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, reference)) = reference else { return false };
        let expected = reference + at.elapsed();
        let difference = expected.duration_since(time).unwrap_or_else(|error| error.duration());
        difference < MAX_DIFFERENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_clocks_agree_within_an_hour() {
        let (clock, time) = (ReferenceClock::default(), now());
        assert!(!clock.is_known() && !clock.agrees_with(time), "no reference");
        clock.observe(time);
        assert!(clock.is_known());
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert!(
            clock.agrees_with(time) && clock.agrees_with(time + minutes(59)) && clock.agrees_with(time - minutes(58))
        );
        assert!(!clock.agrees_with(time + minutes(62)) && !clock.agrees_with(time - minutes(61)));
        clock.observe(time + minutes(62));
        assert!(clock.agrees_with(time + minutes(62)) && !clock.agrees_with(time));
    }
}
