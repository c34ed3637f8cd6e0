//! The API as its users meet it: over HTTP, on a real Postgres, with real files.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

mod access;
mod account;
mod browser;
mod chaos;
mod codehost;
mod contract;
mod deployments;
mod dns;
mod examples;
mod hostnames;
mod idempotency;
mod invites;
mod judges;
mod killed;
mod kit;
mod limits;
mod matrix;
mod nameservers;
mod node_process;
mod nodes;
mod notifications;
mod orgs;
mod outage;
mod pdns;
mod process;
mod projects;
mod ssh_keys;
mod tokens;
mod tour;
