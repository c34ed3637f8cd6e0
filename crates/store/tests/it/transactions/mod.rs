//! The pool, the unit of work and the wake-up, on a real Postgres.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

mod abandoned;
mod cached;
mod kit;
mod listener;
mod pool;
mod transaction;
