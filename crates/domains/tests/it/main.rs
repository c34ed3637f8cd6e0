//! Tests of the context on Postgres, with providers that fail as the tests say.

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
