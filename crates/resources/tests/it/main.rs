//! Tests of the public API on a real Postgres.

mod example;
mod grants;
mod kit;
