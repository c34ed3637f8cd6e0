//! Nodes, and the desired state that they fetch.
//!
//! Owns the Postgres schema `convergence`. The table is the truth and a notification only wakes: whoever misses one
//! finds the same state at its next look. A node's revision is raised by the transaction that changes what the node is
//! to serve, under the node's row lock, so revisions become visible in their order and without gaps.

mod error;
mod model;
mod postgres;
mod repository;
mod schema;
mod service;

pub use error::ConvergenceError;
pub use model::{AccessMode, Desired, NewNode, Node, NodeName, Placed, PlacementState, Site, SiteAccess};
pub use repository::{ConvergenceRepository, Placement};
pub use service::Convergence;
