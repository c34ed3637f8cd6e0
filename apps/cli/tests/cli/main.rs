//! Tests of the `svc` program against a real server.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests panic on unexpected results")]

mod account;
mod ai;
mod auth;
mod billing;
mod browsing;
mod codehost;
mod commands;
mod connection_failures;
mod databases;
mod deploying;
mod devices;
mod domains;
mod email;
mod git;
mod node;
mod output;
mod packing;
mod reverse_proxy;
mod secrecy;
mod secrets;
mod signing_in;
mod storage;
mod support;
mod untrusted_git;
mod waiting;
mod zones;
