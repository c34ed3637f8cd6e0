//! Tests of the public API on a real Postgres and real files.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test panics")]

mod access;
mod authorize;
mod bundles;
mod creation;
mod deployments;
mod example;
mod hostname_checks;
mod hostname_reservations;
mod hostname_takeovers;
mod hostnames;
mod kit;
mod lifecycle;
mod lists;
mod provenance;
mod purge;
mod query_plans;
mod rejected_uploads;
mod rollback;
mod s3;
