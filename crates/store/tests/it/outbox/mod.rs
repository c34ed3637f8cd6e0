//! The outbox, on a real Postgres: what is delivered how often, whoever dies at whatever moment.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod deaths;
mod delivering;
mod kit;
mod operating;
mod sealing;
mod withdrawing;
