//! The time of day, where something outlives the process. What lives within it is measured by `Instant`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "kernel::World, which tests can fix, would bring Postgres into the node")]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
