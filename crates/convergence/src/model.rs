//! Nodes, as operators see them.

use kernel::{NodeId, Time, Token};
use serde::Serialize;

kernel::text! {
    /// A node's name, for operators.
    pub struct NodeName matches "^[a-z0-9][a-z0-9.-]{0,62}$"
        means "1 to 63 characters of a-z, 0-9, . and -, beginning with a letter or a digit"
}

kernel::words! {
    /// Where a placement stands (specification, States, "Placement").
    pub enum PlacementState {
        /// No node has taken it yet.
        Pending = "pending",
        /// Its node is to serve it.
        Active = "active",
        /// Its node is to keep it, and not serve it.
        Suspended = "suspended",
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub id: NodeId,
    pub name: NodeName,
    pub created_at: Time,
}

/// A node as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    #[serde(flatten)]
    pub node: Node,
    /// When it last asked for its desired state, to the minute; none if it never did.
    pub seen_at: Option<Time>,
    /// How many projects are at home on it.
    pub placements: i64,
}

/// A node just revoked, and what became of the projects that were at home on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    pub node: Node,
    /// Projects that other nodes took.
    pub moved: usize,
    /// Projects that wait for a node, because there is no other.
    pub waiting: usize,
}

/// A node just added: the one time that its credential is shown.
#[derive(Debug, Clone)]
pub struct NewNode {
    pub node: Node,
    pub token: Token,
}
