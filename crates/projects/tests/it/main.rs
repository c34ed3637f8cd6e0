//! Projects, deployments and bundles as a user of this crate alone meets them, on a real Postgres and real files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod access;
mod bundles;
mod creation;
mod deployments;
mod example;
mod hostnames;
mod kit;
mod lifecycle;
mod lists;
mod plans;
mod provenance;
mod refusals;
mod rollback;
mod round_trip;
mod s3;
mod upkeep;
