//! Nodes, their desired state and their reports.

pub mod node_process;
pub mod nodes;
