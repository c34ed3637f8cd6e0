//! Work on many rows, some at a time: no statement runs into its time-out, and no lock is held for long.

/// Rows at a time.
pub const BATCH: i64 = 1000;

/// Whether a batch of so many rows was a full one, so that there may be more.
#[must_use]
pub fn is_full(rows: usize) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= BATCH)
}
