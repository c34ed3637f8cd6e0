//! Tests of the public API on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod auth;
mod auth_races;
mod example;
mod grants;
mod kit;
mod reports;
mod sealing;
mod secret_races;
mod secrets;
mod storage;
