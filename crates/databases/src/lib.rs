//! The relational databases of projects.
//!
//! Owns the Postgres schema `databases`. The home node of a project holds the database. This context decides which
//! logins the database has, which operations run, and which generations exist. It publishes each change as the part
//! `database` ([`DesiredPart`]), in the transaction that makes the change, and loads the part when the node polls
//! ([`PartValues`]). The node's reports advance operations ([`Databases::observe`]).
//!
//! The lock of a project's placement serializes all changes of the project's database, and the reports about it.

mod error;
mod model;
mod part;
mod ports;
mod repository;
mod schema;
mod scram;
mod service;

pub use error::DatabaseError;
pub use model::*;
pub use part::{PartValues, SEALED_COLUMNS};
pub use ports::*;
pub use repository::*;
pub use service::{Databases, Progress, Target};
