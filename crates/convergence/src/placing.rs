//! Giving projects their home nodes.

use kernel::{NodeId, ProjectId};
use store::{Connection, Error, Result};

use crate::repository::{NodeRepository as _, PartRepository as _, PlacementRepository as _};

/// Raises the node's revision by this much, and gives both; none when the node was revoked.
pub(crate) async fn next_revision(tx: &mut Connection, node: NodeId, by: i64) -> Result<Option<(NodeId, i64)>> {
    Ok(tx.node_raise_revision(node, by).await?.map(|revision| (node, revision)))
}

/// Gives a project without a home the node with the fewest placements, and one more revision of that node than the
/// project's parts need; none while there is no node. A node that is revoked at this moment is skipped.
pub(crate) async fn assign(tx: &mut Connection, project: ProjectId) -> Result<Option<(NodeId, i64)>> {
    while let Some(node) = tx.node_least_loaded().await? {
        if let Some(revision) = settle(tx, node, &[project], 1).await? {
            return Ok(Some((node, revision)));
        }
    }
    Ok(None)
}

/// Makes the node the home of the projects, whose placements are locked. Each of their parts gets a revision of the node,
/// and the caller gets `more` of them, of which this is the last; none when the node was revoked.
pub(crate) async fn settle(
    tx: &mut Connection,
    node: NodeId,
    projects: &[ProjectId],
    more: i64,
) -> Result<Option<i64>> {
    let parts = tx.part_count(projects).await?;
    let Some(last) = tx.node_raise_revision(node, parts + more).await? else { return Ok(None) };
    let moved = tx.placement_move(projects, node, last - more - parts).await?;
    if moved != parts {
        return Err(Error::inconsistent(format!("{moved} parts moved, not {parts}")));
    }
    Ok(Some(last))
}
