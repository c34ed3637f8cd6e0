//! Postgres access for every context: the pool, transactions with an audit row, notifications, sealed values, the
//! outbox, sagas, rate limits and migrations.
//!
//! A context's repository is a trait that is implemented for [`Connection`]. A service calls its methods in a
//! transaction ([`Store::transaction`]), or on a pooled connection for reads ([`Store::connection`]).

mod audit;
mod backoff;
mod batches;
mod caller_check;
mod clock_check;
mod config;
mod connect;
mod error;
mod group_commit;
mod idempotency;
mod instrument;
mod listen;
mod lookups;
pub mod migrations;
pub mod outbox;
mod page;
mod per_thread_pools;
mod pool;
mod prepared;
mod rate_limits;
pub mod saga;
pub mod schema;
mod seal;
mod transaction;

pub use audit::{AuditQuery, AuditRecord};
pub use batches::{BATCH_SIZE, is_full_batch, purge_batch};
pub use caller_check::{Authorized, CallerCheck, FindCallerCheck};
pub use config::{Config, InvalidUrl, Timeouts};
pub use error::{Error, Result};
pub use group_commit::GroupCommit;
pub use idempotency::{ClaimOutcome, ClaimRequest};
pub use listen::{Listener, notify};
pub use page::any_of;
pub use per_thread_pools::PoolStatus;
pub use pool::{PooledConnection, Store};
pub use prepared::Prepared;
pub use rate_limits::{PermitParameters, Quota};
pub use seal::{FailedValue, KeyCount, RotatedBatch, Rotation, SEALED_COLUMNS, SealedColumn};
pub use transaction::Outcome;

/// The connection that repositories are implemented for.
pub type Connection = diesel_async::AsyncPgConnection;
