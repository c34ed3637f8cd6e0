//! Tests of the public API on a real Postgres.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step ends the test")]

mod calls;
mod kit;
mod model;
mod ordering;
mod orders;
mod overdraft;
mod plans;
mod races;
mod signatures;
mod topup_ends;
mod topups;
