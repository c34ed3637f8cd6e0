//! The schema's history and the databases of tests, on a real Postgres.
#![expect(clippy::unwrap_used, reason = "tests")]

mod databases;
mod description;
mod foreign_keys;
mod migrations;
