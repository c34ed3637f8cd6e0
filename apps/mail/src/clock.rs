//! The current time, and new ids.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// Returns the time.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Returns a new id (UUIDv7). Ids sort by the time of their creation.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn new_id() -> Uuid {
    Uuid::now_v7()
}
