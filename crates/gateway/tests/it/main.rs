//! Tests of routes, extractors and the OpenAPI document.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test panics")]

mod bodies;
mod collisions;
mod compose;
mod document;
mod errors;
mod examples;
mod formats;
mod idempotency;
mod kit;
mod node_wait;
mod rate_limits;
mod reverse_proxy;
mod routes;
mod units;
mod unknown_fields;
mod uploads;
