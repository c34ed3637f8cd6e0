//! Databases of projects, with a private Postgres cluster for each test.

mod backups;
mod clocks;
mod contention;
mod enabling;
mod env_db;
mod exclusive;
mod isolation;
mod kills;
pub mod kit;
mod operate;
mod operations;
mod program;
mod removal;
mod repair;
mod reports;
mod restores;
mod revoked;
mod saved;
mod sizes;
mod tls;
mod tokens;
mod transactions;
mod upgrade;
