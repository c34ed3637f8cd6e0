//! Tests of the context with Postgres and simulated providers. Each test sets the faults of the providers.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed step ends the test")]

mod kit;
mod managing;
mod matrix;
mod outage;
mod providers;
mod purchases;
mod quota;
mod races;
mod renewals;
mod unbilled;
