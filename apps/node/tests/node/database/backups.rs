//! Backups and restores of databases, with a real Postgres and real stores (docs/backups.md).

mod damage;
mod failures;
mod hostile;
mod kill;
mod limits;
mod retention;
mod rig;
mod roundtrip;
mod schedule;

use rig::{Rig, Source};
