//! The hidden primary over real sockets and a real Postgres.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests panic on failure")]

mod hostile;
mod kit;
mod notices;
mod transfers;
