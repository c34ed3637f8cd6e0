//! Nodes and their desired state, tested through the public API of this crate on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod bundles;
mod databases;
mod desired;
mod example;
mod final_parts;
mod kit;
mod nodes;
mod parts;
mod placement;
mod polling;
mod report_kinds;
mod reports;
mod revisions;
mod revocation;
mod sourced_parts;
