//! The outbox on a real Postgres: deliveries, even when workers and connections fail.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod delivery;
mod failures;
mod kit;
mod many_tenants;
mod operator;
mod sealing;
mod withdrawal;
