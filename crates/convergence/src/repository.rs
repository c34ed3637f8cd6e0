//! What convergence asks of storage.

use kernel::{Digest, NodeId, ProjectId, Time, TokenHash};
use protocol::Change;
use serde_json::Value;
use store::Result;

use crate::model::{Node, NodeView};

/// A part to write.
pub struct PartRecord {
    pub project: ProjectId,
    pub part: &'static str,
    /// The home node and its revision; none while the placement is pending.
    pub home: Option<(NodeId, i64)>,
    /// None: the part is no longer desired.
    pub desired: Option<Value>,
    pub at: Time,
}

/// The stored desired state of a node, or the changes to it since a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub revision: i64,
    pub batch: i64,
    pub parts: Vec<Change>,
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

    /// Locks the project's placement and gives its home node: none without a placement, `Some(None)` for a pending one.
    async fn placement_home(&mut self, project: ProjectId) -> Result<Option<Option<NodeId>>>;

    /// Inserts a pending placement, unless the project has one.
    async fn placement_insert(&mut self, project: ProjectId, at: Time) -> Result<()>;

    /// Whether any project waits for a node.
    async fn placement_is_waiting(&mut self) -> Result<bool>;

    /// Projects that wait for a node, locked.
    async fn placement_waiting(&mut self) -> Result<Vec<ProjectId>>;

    /// Projects that are at home on the node, locked.
    async fn placement_of_node(&mut self, node: NodeId) -> Result<Vec<ProjectId>>;

    /// Gives locked placements a home, and each of their parts one of the revisions after this one. The number of parts.
    async fn placement_move(&mut self, projects: &[ProjectId], home: NodeId, after: i64) -> Result<i64>;

    /// Takes the home of locked placements: they are pending.
    async fn placement_wait(&mut self, projects: &[ProjectId]) -> Result<()>;

    /// Which of these projects are at home on the node.
    async fn placement_at(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>>;

    /// Writes a part of a project whose placement is locked.
    async fn part_upsert(&mut self, part: PartRecord) -> Result<()>;

    /// The number of parts of these projects.
    async fn part_count(&mut self, projects: &[ProjectId]) -> Result<i64>;

    /// The number of parts of this project that are desired.
    async fn part_count_desired(&mut self, project: ProjectId) -> Result<i64>;

    /// Ends every desired part of a locked placement, each with one of the revisions after this one; none for a pending
    /// placement.
    async fn part_remove_all(&mut self, project: ProjectId, after: Option<i64>, at: Time) -> Result<()>;

    /// The parts of a node's desired state that changed after `since`, in one snapshot; none when there is no such node.
    async fn desired_since(&mut self, node: NodeId, since: i64) -> Result<Option<Stored>>;

    /// Whether the node is to serve something out of this bundle.
    async fn bundle_is_placed(&mut self, node: NodeId, bundle: Digest) -> Result<bool>;
}
