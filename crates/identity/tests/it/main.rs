//! Tests of the identity service on a real Postgres, without HTTP.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

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
