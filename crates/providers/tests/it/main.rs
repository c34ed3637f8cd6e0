//! Tests of each adapter against a small server with the real protocol.
//!
//! The test process installs no crypto provider, because the crate includes one.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

mod acme;
mod codehost;
mod lending;
mod mail;
mod mail_content;
mod outbound;
mod refunds;
mod registrar;
mod relay;
mod resolver;
mod smtp;
mod smtp_errors;
mod sns;
mod subscriptions;
