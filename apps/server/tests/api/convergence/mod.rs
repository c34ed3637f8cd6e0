//! Nodes, desired state and reports.

pub mod node_process;
pub mod nodes;
