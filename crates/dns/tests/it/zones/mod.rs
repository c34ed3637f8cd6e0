//! Zones in a real Postgres.

#![expect(clippy::unwrap_used, reason = "tests panic on failure")]

mod example;
mod journal;
mod kit;
mod signing;
