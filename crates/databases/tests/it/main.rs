//! Tests of the public API on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod connect;
mod daily_limits;
mod enabling;
mod example;
mod exports;
mod generations;
mod kit;
mod observation;
mod operation_races;
mod operations;
mod part;
mod ports;
mod purge;
mod sealing;
mod tokens;
