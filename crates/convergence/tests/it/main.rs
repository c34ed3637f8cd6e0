//! Nodes and their desired state as a user of this crate alone meets them, on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod bundles;
mod desired;
mod example;
mod kinds;
mod kit;
mod nodes;
mod parts;
mod placement;
mod polling;
mod reports;
mod revisions;
mod revoking;
