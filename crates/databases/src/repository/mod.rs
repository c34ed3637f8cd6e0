//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::RunQueryDsl as _;
use kernel::Time;
use store::{BATCH_SIZE, Connection, Result};

mod database;
mod export;
mod generation;
mod operation;
mod part;
mod project;
mod report;
mod token;
mod usage;

pub use database::*;
pub use export::*;
pub use generation::*;
pub use operation::*;
pub use part::*;
pub use project::*;
pub use report::*;
pub use token::*;
pub use usage::*;

/// Deletes a batch of rows with a statement whose parameters are a time and the size of the batch. Returns the number
/// of rows.
async fn purge_batch(connection: &mut Connection, statement: &'static str, before: Time) -> Result<usize> {
    let purge = diesel::sql_query(statement).bind::<Timestamptz, _>(before).bind::<BigInt, _>(BATCH_SIZE);
    Ok(purge.execute(connection).await?)
}
