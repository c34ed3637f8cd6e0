//! Tests of routes, extractors and the OpenAPI document.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

mod bodies;
mod collisions;
mod document;
mod examples;
mod formats;
mod idempotency;
mod kit;
mod routes;
