//! Nodes, the desired state that they fetch, and the reports that they send.
//!
//! Owns the Postgres schema `convergence`. The desired state of a project is divided into parts. The context that owns
//! a part writes it ([`PartWriter`]) in the transaction that makes the decision. This crate reads no part except
//! `site`: the home node may fetch the bundle whose digest is in that part. The values of some parts, such as secrets,
//! stay with their owner and are loaded when a node polls ([`SourcedPartWriter`], [`PartSource`]). Each report goes to
//! the context that registered for its kind ([`ReportReceiver`]).
//!
//! The tables are authoritative. A notification only wakes a poll. A poll that misses a notification finds the change a
//! few seconds later. The transaction that changes a part increases the node's revision under the node's row lock. So
//! revisions become visible in order and without gaps.

mod assignment;
mod core;
mod databases;
mod error;
mod model;
mod part;
mod ports;
mod read_part;
mod registry;
mod repository;
mod schema;
mod service;

pub use core::{Core, EmbeddedCore, WakeUps};
pub use databases::DatabasePlacements;
pub use error::ConvergenceError;
pub use model::*;
pub use part::{FinalPartWriter, PartWriter, ProjectRemover, SourcedPartWriter};
pub use ports::{PartSource, PlatformCertificates, ReportReceiver};
pub use registry::AlreadyRegistered;
pub use repository::*;
pub use service::{Builder, Convergence, Nodes, Placements};
