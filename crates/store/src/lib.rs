//! Postgres, as every context uses it: the pool, the transaction with its audit row, notifications, sealed values,
//! the outbox and migrations.
//!
//! A context's repository is a trait implemented for [`Connection`]; a service begins the unit of work with
//! [`Store::transaction`] or borrows a connection for reading with [`Store::connection`], and the repository's verbs
//! are at hand on what it is given.

mod audit;
mod batches;
mod cached;
mod config;
mod connect;
mod error;
mod instrument;
mod listen;
pub mod migrations;
mod once;
pub mod outbox;
mod page;
mod pool;
pub mod schema;
mod seal;
mod shares;
mod transaction;

pub use batches::{BATCH, is_full};
pub use cached::Cached;
pub use config::{Config, InvalidUrl};
pub use error::{Error, Result};
pub use listen::{Listener, notify};
pub use once::{Claim, Request};
pub use page::of;
pub use pool::{Lease, Store};
pub use shares::PoolStatus;
pub use transaction::Outcome;

/// The connection that repositories are implemented for.
pub type Connection = diesel_async::AsyncPgConnection;
