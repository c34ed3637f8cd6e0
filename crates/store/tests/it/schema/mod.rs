//! Migrations and test databases, on a real Postgres.
#![expect(clippy::unwrap_used, reason = "tests")]

mod databases;
mod description;
mod foreign_keys;
mod migrations;
