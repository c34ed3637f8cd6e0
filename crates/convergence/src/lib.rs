//! Nodes, the desired state that they fetch, and what they report.
//!
//! Owns the Postgres schema `convergence`. The table is the truth and a notification only wakes: whoever misses one
//! finds the same state at its next look. A node's revision is raised by the transaction that changes what the node is
//! to serve, under the node's row lock, so revisions become visible in their order and without gaps.

mod core;
mod error;
mod model;
mod ports;
mod postgres;
mod report;
mod repository;
mod schema;
mod service;

pub use core::{Core, Embedded, Watch};
pub use error::ConvergenceError;
pub use model::{
    Desired, NewNode, Node, NodeName, NodeView, Placed, PlacementState, Platform, Revoked, Site, SiteAccess, Stored,
};
pub use ports::Deployments;
pub use report::{DeploymentReport, DeploymentState, Receipt, Report};
pub use repository::{ConvergenceRepository, Placement};
pub use service::{Convergence, Nodes};
