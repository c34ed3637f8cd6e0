//! Rules of the authorization server that need no HTTP: limits, purges and the signing keys of several processes. The
//! API tests test the endpoints.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

mod keys;
mod kit;
mod limits;
mod purge;
