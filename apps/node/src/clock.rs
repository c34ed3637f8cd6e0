//! The wall-clock time, for values that outlive the process. All other code uses `Instant`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};

/// The time since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The wall-clock time as a value for Postgres.
pub fn now() -> SystemTime {
    UNIX_EPOCH + since_epoch()
}

/// A time in the format of RFC 3339, in UTC and with milliseconds.
pub fn rfc3339(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}
