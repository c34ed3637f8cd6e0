//! Tests of the public API on a real Postgres and a mail store in a folder.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

mod deliveries;
mod events;
mod example;
mod inbound;
mod kit;
mod limit;
mod log;
mod message;
mod orphans;
mod relaying;
mod retention;
mod s3;
mod sending;
mod stored_bytes;
