//! Tests of the organization service on a real Postgres, without HTTP.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod audit;
mod creation;
mod example;
mod invite_mails;
mod invite_races;
mod invites;
mod joining;
mod kit;
mod lists;
mod mails;
mod members;
mod notifications;
mod personal;
mod plans;
mod races;
