//! Grants as a user of this crate alone meets them, on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod example;
mod grants;
mod kit;
