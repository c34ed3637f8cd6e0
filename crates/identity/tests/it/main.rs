//! Users and sessions as a user of this crate alone meets them, on a real Postgres.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

mod codehost;
mod devices;
mod example;
mod first;
mod keys;
mod kit;
mod login;
mod profile;
mod sessions;
mod tokens;
