//! The storage of connected apps. Each file has a trait on [`store::Connection`] and its SQL.

use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::RunQueryDsl as _;
use kernel::Time;
use store::{BATCH_SIZE, Connection, Result};

mod client;
mod code;
mod device;
mod grant;
mod key;
mod refresh_token;

pub use client::*;
pub use code::*;
pub use device::*;
pub use grant::*;
pub use key::*;
pub use refresh_token::*;

/// Deletes a batch of rows with a statement whose parameters are a time and the size of the batch. Returns the number
/// of rows.
async fn purge_batch(connection: &mut Connection, statement: &'static str, before: Time) -> Result<usize> {
    let purge = diesel::sql_query(statement).bind::<Timestamptz, _>(before).bind::<BigInt, _>(BATCH_SIZE);
    Ok(purge.execute(connection).await?)
}
