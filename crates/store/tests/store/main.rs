//! The schema's history and the databases of tests, on a real Postgres.
#![expect(clippy::unwrap_used, reason = "tests")]

mod description;
mod migrations;
mod schema;
mod testing;
