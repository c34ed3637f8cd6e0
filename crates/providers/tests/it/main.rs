//! Every adapter against a small server that speaks the real protocol.
//!
//! No provider of cryptography is installed for the process: the crate brings its own along.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test that is how a failure is reported"
)]

mod codehost;
mod letter;
mod mail;
mod outside;
mod refusals;
mod resolver;
mod smtp;
