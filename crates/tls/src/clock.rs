//! The wall-clock time, for the expiry of certificates.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time in seconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn now() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}
