//! Organizations as a user of this crate alone meets them, on a real Postgres.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

mod audit;
mod creation;
mod example;
mod invite_races;
mod invites;
mod joining;
mod kit;
mod lists;
mod mails;
mod members;
mod notifications;
mod personal;
mod races;
