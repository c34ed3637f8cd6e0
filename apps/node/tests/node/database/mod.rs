//! Databases of projects, with a private Postgres cluster for each test.

mod backups;
mod contention;
mod enabling;
mod env_db;
mod isolation;
mod kills;
mod kit;
mod operate;
mod operations;
mod program;
mod removal;
mod repair;
mod sizes;
mod tokens;
