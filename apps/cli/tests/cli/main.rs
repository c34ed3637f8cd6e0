//! `svc` as it is run, against a real server.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

mod breaking;
mod codehost;
mod commands;
mod deploying;
mod front;
mod kit;
mod output;
mod packing;
mod signing_in;
mod waiting;
