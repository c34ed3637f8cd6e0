//! What convergence asks of storage.

use kernel::{Digest, NodeId, ProjectId, Time, TokenHash};
use store::Result;

use crate::model::{Desired, Node, PlacementState, Site};

/// A placement to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    pub project: ProjectId,
    /// The home node and its revision; none while there is no node.
    pub home: Option<(NodeId, i64)>,
    pub state: PlacementState,
    pub desired: Option<Site>,
    pub at: Time,
}

/// The verbs of this context on a [`store::Connection`].
pub trait ConvergenceRepository {
    /// Writes a new node; false when its name is taken.
    async fn node_insert(&mut self, node: &Node, token_hash: TokenHash) -> Result<bool>;

    /// Replaces a node's credential; none when there is no node of that name.
    async fn node_set_token(&mut self, name: &str, token_hash: TokenHash) -> Result<Option<Node>>;

    /// The node whose credential this is.
    async fn node_by_token(&mut self, token_hash: TokenHash) -> Result<Option<NodeId>>;

    /// The node with the fewest placements.
    async fn node_least_loaded(&mut self) -> Result<Option<NodeId>>;

    /// Raises the node's revision and tells it; holds the node's row until the transaction ends.
    async fn node_next_revision(&mut self, node: NodeId) -> Result<i64>;

    /// The project's home node: none without a placement, `Some(None)` for one that waits for a node.
    async fn placement_home(&mut self, project: ProjectId) -> Result<Option<Option<NodeId>>>;

    /// Writes a placement, or what is now desired of it.
    async fn placement_upsert(&mut self, placement: &Placement) -> Result<()>;

    /// Whether any project waits for a node.
    async fn placement_is_waiting(&mut self) -> Result<bool>;

    /// Projects that wait for a node, locked.
    async fn placement_waiting(&mut self) -> Result<Vec<ProjectId>>;

    /// Gives a waiting placement its home.
    async fn placement_adopt(&mut self, project: ProjectId, node: NodeId, revision: i64) -> Result<()>;

    /// What the node is to serve, as far as it changed after `since`, in one snapshot; none when there is no such node.
    async fn desired_since(&mut self, node: NodeId, since: i64) -> Result<Option<Desired>>;

    /// Whether the node is to serve something out of this bundle.
    async fn bundle_is_placed(&mut self, node: NodeId, bundle: Digest) -> Result<bool>;
}
