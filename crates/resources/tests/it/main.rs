//! Grants as a user of this crate alone meets them, on a real Postgres.

mod example;
mod grants;
mod kit;
