//! Zones in a real Postgres.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests panic on failure")]

mod deleted;
mod example;
mod journal;
mod kit;
mod limits;
mod nested;
mod reading;
mod registered;
mod reservations;
mod signer;
mod signing;
mod takeovers;
