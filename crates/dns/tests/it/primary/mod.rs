//! The hidden primary over real sockets, on a real Postgres: what secondaries are told, and what strangers are not.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

mod hostile;
mod kit;
mod notices;
mod transfers;
