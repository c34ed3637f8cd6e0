//! The pool, transactions and notifications, on a real Postgres.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod caller_check;
mod dropped;
mod group_commit;
mod kit;
mod listener;
mod lookups;
mod pool;
mod prepared;
mod transaction;
