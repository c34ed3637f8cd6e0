//! Tests of a node against a simulated control plane, with real HTTP clients.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod ai;
mod auth;
mod caching;
mod control_plane;
mod converging;
mod cookies;
mod database;
mod mail;
mod node_process;
mod process;
mod protected;
mod reporting;
mod representations;
mod running;
mod serving;
mod storage;
mod timeout;
mod tls;
mod visitor;
mod workers;
