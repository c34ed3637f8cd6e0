//! Batches for background jobs that change many rows: no statement reaches its timeout, and no lock is held for long.

use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::RunQueryDsl as _;
use kernel::Time;

use crate::{Connection, Prepared, Result};

/// The number of rows in a batch.
pub const BATCH_SIZE: i64 = 1000;

/// Returns whether a batch of this many rows was full, so that more rows may remain.
#[must_use]
pub fn is_full_batch(rows: usize) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= BATCH_SIZE)
}

/// Deletes a batch of rows with a statement whose parameters are a time and the size of the batch. Returns the number
/// of rows.
///
/// # Errors
/// Returns an error if the statement fails.
pub async fn purge_batch(connection: &mut Connection, statement: &'static str, before: Time) -> Result<usize> {
    let purge = diesel::sql_query(statement).bind::<Timestamptz, _>(before).bind::<BigInt, _>(BATCH_SIZE);
    Ok(Prepared(purge).execute(connection).await?)
}
