//! Nodes, the desired state that they fetch, and the reports that they send.
//!
//! Owns the Postgres schema `convergence`. The desired state of a project is divided into parts. The context that owns a
//! part writes it ([`Part`]) in the transaction that decides it; this crate does not know what parts mean. Reports go to
//! the contexts that registered for their kinds ([`ReportReceiver`]).
//!
//! The table is the truth and a notification only wakes: a poll that misses one finds the same state a few seconds later.
//! A node's revision is raised by the transaction that changes a part, under the node's row lock, so revisions become
//! visible in their order and without gaps.

mod core;
mod error;
mod model;
mod part;
mod placing;
mod ports;
mod registry;
mod repository;
mod schema;
mod service;

pub use core::{Core, Embedded, Watch};
pub use error::ConvergenceError;
pub use model::*;
pub use part::{Part, Removal};
pub use ports::ReportReceiver;
pub use registry::AlreadyRegistered;
pub use repository::*;
pub use service::{Builder, Convergence, Nodes};
