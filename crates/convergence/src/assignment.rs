//! Assignment of projects to home nodes.

use kernel::{NodeId, ProjectId, Time};
use protocol::{Database, DeletedBackups, DesiredPart as _};
use store::{Connection, Error, Result};

use crate::repository::{NodeRepository as _, PartRepository as _, PlacementRepository as _};

/// The parts that need a home node with a Postgres.
pub(crate) const DATABASE_PARTS: [&str; 2] = [Database::NAME, DeletedBackups::NAME];

/// Increases the node's revision. Returns the node with its new revision, or `None` if the node was revoked.
pub(crate) async fn raise_revision(tx: &mut Connection, node: NodeId, by: i64) -> Result<Option<(NodeId, i64)>> {
    Ok(tx.node_raise_revision(node, by).await?.map(|revision| (node, revision)))
}

/// Assigns a pending project to the node with the fewest placements, preferably not a silent one. A project with a
/// database needs a node with a Postgres. Skips a node that is being revoked. Returns the node and its revision for one
/// more part, or `None` if there is no such node.
pub(crate) async fn assign_home(
    tx: &mut Connection,
    project: ProjectId,
    has_database: bool,
    now: Time,
) -> Result<Option<(NodeId, i64)>> {
    while let Some(node) = tx.node_least_loaded(has_database, now).await? {
        if let Some(revision) = assign_to_node(tx, node, &[project], 1).await? {
            return Ok(Some((node, revision)));
        }
    }
    Ok(None)
}

/// Assigns a pending project to the node with the fewest placements among the nodes with a Postgres, preferably not a
/// silent one. Returns the node, or `None` if there is no such node.
pub(crate) async fn assign_database_home(tx: &mut Connection, project: ProjectId, now: Time) -> Result<Option<NodeId>> {
    while let Some(node) = tx.node_least_loaded(true, now).await? {
        if assign_to_node(tx, node, &[project], 0).await?.is_some() {
            return Ok(Some(node));
        }
    }
    Ok(None)
}

/// Assigns the projects of locked placements to the node. Reserves one revision of the node for each of their parts,
/// and then `extra` revisions for the caller. Returns the last reserved revision, or `None` if the node was revoked.
pub(crate) async fn assign_to_node(
    tx: &mut Connection,
    node: NodeId,
    projects: &[ProjectId],
    extra: i64,
) -> Result<Option<i64>> {
    let parts = tx.part_count(projects).await?;
    let Some(last) = tx.node_raise_revision(node, parts + extra).await? else { return Ok(None) };
    let moved = tx.placement_move(projects, node, last - extra - parts).await?;
    if moved != parts {
        return Err(Error::inconsistent(format!("moved {moved} parts instead of {parts}")));
    }
    Ok(Some(last))
}
