//! Nodes and placements.

use kernel::{NodeId, Time, Token};
use serde::Serialize;

kernel::text! {
    /// A node's name.
    pub struct NodeName matches "^[a-z0-9][a-z0-9.-]{0,62}$"
        means "1 to 63 characters of a-z, 0-9, . and -, beginning with a letter or a digit"
}

kernel::words! {
    /// The kind of a node.
    pub enum NodeKind {
        /// Deployments of projects, with their resources.
        App = "app",
        /// The contents of git repositories.
        Git = "git",
        /// The reception of mail.
        Mail = "mail",
    }
}

kernel::words! {
    /// The state of a placement (specification, States, "Placement").
    pub enum PlacementState {
        /// The project has no home node yet.
        Pending = "pending",
        /// The home node serves the project.
        Active = "active",
        /// An operation on the project's database is in the phase of this name.
        Draining = "draining",
        Sealing = "sealing",
        Committing = "committing",
        Reactivating = "reactivating",
        /// The home node keeps the project but does not serve it.
        Suspended = "suspended",
    }
}

impl PlacementState {
    /// Returns the states from which a placement can enter this state, if it keeps its home node.
    pub(crate) const fn predecessors(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::Suspended],
            Self::Suspended => &[Self::Active, Self::Pending],
            Self::Draining => &[Self::Active],
            Self::Sealing => &[Self::Draining],
            Self::Committing => &[Self::Sealing],
            Self::Reactivating => &[Self::Committing],
            Self::Active => &[Self::Draining, Self::Sealing, Self::Committing, Self::Reactivating, Self::Suspended],
        }
    }
}

/// The result of choosing a home node with a Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseHome {
    /// The project has a home node that announced a Postgres.
    Assigned,
    /// The project's home node has no Postgres. Or the project has no home node, and none of the existing nodes has a
    /// Postgres.
    NoDatabase,
    /// There is no node.
    NoNode,
    /// The project was deleted.
    Deleted,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub id: NodeId,
    pub name: NodeName,
    pub kind: NodeKind,
    pub created_at: Time,
}

/// A node with its activity and load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    #[serde(flatten)]
    pub node: Node,
    /// The time of the node's last request, accurate to a minute. Null before its first request.
    pub last_seen_at: Option<Time>,
    /// The number of projects whose home node this is.
    pub placements: i64,
}

/// The result of revoking a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    pub node: Node,
    /// The number of projects that moved to other nodes.
    pub moved: usize,
    /// The number of projects that became pending, because there is no other node for them.
    pub pending: usize,
}

/// A node and its new credential, which is shown only once.
#[derive(Debug, Clone)]
pub struct NewNode {
    pub node: Node,
    pub token: Token,
}
