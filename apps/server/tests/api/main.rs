//! The API as its users meet it: over HTTP, on a real Postgres, with real files.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

mod browser;
mod chaos;
mod contract;
mod convergence;
mod dns;
mod examples;
mod idempotency;
mod identity;
mod jobs;
mod judges;
mod killed;
mod kit;
mod limits;
mod matrix;
mod nameservers;
mod orgs;
mod outage;
mod pdns;
mod process;
mod projects;
mod tour;
