//! Batches for background jobs that change many rows: no statement reaches its timeout, and no lock is held for long.

/// The number of rows in a batch.
pub const BATCH_SIZE: i64 = 1000;

/// Returns whether a batch of this many rows was full, so that more rows may remain.
#[must_use]
pub fn is_full_batch(rows: usize) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= BATCH_SIZE)
}
