//! The API as its users meet it: over HTTP, on a real Postgres, with real files.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

mod account;
mod contract;
mod deployments;
mod kit;
mod matrix;
mod nodes;
mod orgs;
mod outage;
mod process;
mod projects;
mod tour;
