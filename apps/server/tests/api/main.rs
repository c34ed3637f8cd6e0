//! Tests of the API over HTTP, with a real Postgres and real files.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests panic on unexpected results"
)]

mod ai;
mod app_sign_in;
mod billing;
mod browser;
mod caller_checks;
mod certificates;
mod chaos;
mod contract;
mod convergence;
mod crashes;
mod databases;
mod dns;
mod domains;
mod examples;
mod git;
mod idempotency;
mod identity;
mod jobs;
mod limits;
mod mail;
mod malformed;
mod matrix;
mod nameservers;
mod oauth;
mod openapi_tools;
mod orgs;
mod outage;
mod overload;
mod paused_commit;
mod pdns;
mod process;
mod projects;
mod resources;
mod support;
mod tls;
mod tour;
mod unread_bodies;
