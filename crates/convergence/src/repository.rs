//! What convergence asks of storage.

use kernel::{Digest, NodeId, ProjectId, Time, TokenHash};
use store::Result;

use crate::model::{Node, NodeView, PlacementState, Site, Stored};

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

    /// The node of this name.
    async fn node_find(&mut self, name: &str) -> Result<Option<Node>>;

    /// Every node, by name.
    async fn node_list(&mut self) -> Result<Vec<NodeView>>;

    /// The node with the fewest placements.
    async fn node_least_loaded(&mut self) -> Result<Option<NodeId>>;

    /// How many placements each node but this one has.
    async fn node_loads(&mut self, but: NodeId) -> Result<Vec<(NodeId, i64)>>;

    /// Removes a node that has no placements.
    ///
    /// # Errors
    /// A violation of `placements_node_id_fkey` while it has any.
    async fn node_delete(&mut self, node: NodeId) -> Result<()>;

    /// Raises the node's revision by so many and tells it; holds the node's row until the transaction ends. None when it is
    /// gone.
    async fn node_raise_revision(&mut self, node: NodeId, by: i64) -> Result<Option<i64>>;

    /// Notes that the node was here, unless that was noted less than a minute ago.
    async fn node_seen(&mut self, node: NodeId, at: Time) -> Result<()>;

    /// Takes the number of a batch in; false when it was taken in before. Holds the node's row until the transaction
    /// ends.
    async fn node_take_batch(&mut self, node: NodeId, batch: i64) -> Result<bool>;

    /// The number of the node's last batch.
    async fn node_batch(&mut self, node: NodeId) -> Result<Option<i64>>;

    /// The project's home node: none without a placement, `Some(None)` for one that waits for a node.
    async fn placement_home(&mut self, project: ProjectId) -> Result<Option<Option<NodeId>>>;

    /// Writes a placement, or what is now desired of it.
    async fn placement_upsert(&mut self, placement: &Placement) -> Result<()>;

    /// Whether any project waits for a node.
    async fn placement_is_waiting(&mut self) -> Result<bool>;

    /// Projects that wait for a node, locked.
    async fn placement_waiting(&mut self) -> Result<Vec<ProjectId>>;

    /// Projects that are at home on the node, locked.
    async fn placement_of_node(&mut self, node: NodeId) -> Result<Vec<ProjectId>>;

    /// Gives placements a home, at the revisions up to this one in their order.
    async fn placement_move(&mut self, projects: &[ProjectId], home: NodeId, last_revision: i64) -> Result<()>;

    /// Takes placements their home: they wait for a node.
    async fn placement_wait(&mut self, projects: &[ProjectId]) -> Result<()>;

    /// Which of these projects are at home on the node.
    async fn placement_at(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>>;

    /// What the node is to serve, as far as it changed after `since`, in one snapshot; none when there is no such node.
    async fn desired_since(&mut self, node: NodeId, since: i64) -> Result<Option<Stored>>;

    /// Whether the node is to serve something out of this bundle.
    async fn bundle_is_placed(&mut self, node: NodeId, bundle: Digest) -> Result<bool>;
}
