//! The wall-clock time, for values that outlive the process. All other code uses `Instant`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
