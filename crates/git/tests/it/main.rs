//! Tests of the context on Postgres.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod kit;
mod lifecycle;
mod ref_updates;
