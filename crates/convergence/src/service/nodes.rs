//! Operations on nodes, for operators.

use std::collections::BTreeMap;

use kernel::audit::{Actor, Event};
use kernel::{NodeId, ProjectId, Token, TokenKind};
use serde_json::json;
use store::{BATCH_SIZE, Connection, Outcome, Store, is_full_batch};

use super::Result;
use crate::assignment::{DATABASE_PARTS, assign_to_node};
use crate::core::{Core as _, EmbeddedCore};
use crate::error::ConvergenceError;
use crate::model::{NewNode, Node, NodeKind, NodeName, NodeView, Revocation};
use crate::repository::{NodeLoad, NodeRepository as _, PartRepository as _, PlacementRepository as _};

/// The maximum number of attempts to revoke a node. An attempt fails if a project is concurrently assigned to the node.
const MAX_REVOKE_ATTEMPTS: usize = 5;

/// The operations on the nodes of an installation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Nodes {
    store: Store,
}

impl Nodes {
    /// Returns the operations on the nodes in this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Adds a node. If it is a node for projects, assigns the pending projects without a database to it.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::NodeNameTaken`] or [`ConvergenceError::GitNodeExists`].
    pub async fn add(&self, actor: &Actor, name: NodeName, kind: NodeKind) -> Result<NewNode> {
        let clock_rng = self.store.clock_rng();
        let node = Node { id: clock_rng.id(), name, kind, created_at: clock_rng.now() };
        let token = Token::mint(TokenKind::Node, clock_rng);
        self.store
            .transaction(actor, async |tx| {
                let inserted = tx.node_insert(&node, token.hash()).await;
                let inserted = inserted.map_err(|error| match error.violates("nodes_git_key") {
                    true => ConvergenceError::GitNodeExists,
                    false => error.into(),
                })?;
                if !inserted {
                    return Err(ConvergenceError::NodeNameTaken(node.name));
                }
                if kind == NodeKind::App {
                    assign_pending(tx, node.id).await?;
                }
                let event = event("node.add", &node, json!({ "name": node.name, "kind": kind }));
                Ok(Outcome::Changed(NewNode { node, token }, event))
            })
            .await
    }

    /// Replaces a node's credential. Revokes the old credential immediately.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::NodeNotFound`].
    pub async fn renew(&self, actor: &Actor, name: &NodeName) -> Result<NewNode> {
        let token = Token::mint(TokenKind::Node, self.store.clock_rng());
        self.store
            .transaction(actor, async |tx| {
                let renewed = tx.node_set_token(name.as_str(), token.hash()).await?;
                let node = renewed.ok_or_else(|| ConvergenceError::NodeNotFound(name.clone()))?;
                let event = event("node.renew", &node, json!({ "name": node.name }));
                Ok(Outcome::Changed(NewNode { node, token }, event))
            })
            .await
    }

    /// Lists the nodes by name.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn list(&self) -> Result<Vec<NodeView>> {
        Ok(self.store.connection().await?.node_list().await?)
    }

    /// Deletes a node with its credential, and moves its projects to the nodes with the fewest placements, preferably not
    /// silent ones. A project with a database moves only to a node that announced a Postgres. Without such a node, the
    /// projects become pending. The revoked machine keeps serving its last state until the operator stops it.
    ///
    /// The projects move in batches, each in its own transaction with its own audit event. The first batch ends the
    /// credential. After an error, a repeated call continues.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::NodeNotFound`].
    pub async fn revoke(&self, actor: &Actor, name: &NodeName) -> Result<Revocation> {
        let (mut moved, mut pending, mut attempts) = (0, 0, 1);
        loop {
            match self.revoke_batch(actor, name).await {
                Ok((batch, is_complete)) => {
                    moved += batch.moved;
                    pending += batch.pending;
                    if is_complete {
                        return Ok(Revocation { moved, pending, ..batch });
                    }
                }
                Err(ConvergenceError::Store(error))
                    if error.violates("placements_node_id_fkey") && attempts < MAX_REVOKE_ATTEMPTS =>
                {
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves a batch of projects. Deletes the node if none remains, and otherwise ends its credential, so that its
    /// machine does not stop serving the moved projects. Returns whether the node is deleted.
    async fn revoke_batch(&self, actor: &Actor, name: &NodeName) -> Result<(Revocation, bool)> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx| {
                let not_found = || ConvergenceError::NodeNotFound(name.clone());
                let node = tx.node_find(name.as_str()).await?.ok_or_else(not_found)?;
                let projects = tx.placement_lock_by_node(node.id, BATCH_SIZE).await?;
                let is_complete = !is_full_batch(projects.len());
                let with_database = tx.part_filter_desired(&projects, &DATABASE_PARTS).await?;
                let mut loads = tx.node_loads(node.id, now).await?;
                let mut by_home: BTreeMap<Option<NodeId>, Vec<ProjectId>> = BTreeMap::new();
                for project in projects {
                    let needs_database = with_database.contains(&project);
                    let can_serve = |load: &&mut NodeLoad| load.has_database || !needs_database;
                    let able = loads.iter_mut().filter(can_serve);
                    let home = able.min_by_key(|load| (load.is_silent, load.placements)).map(|load| {
                        load.placements += 1;
                        load.node
                    });
                    by_home.entry(home).or_default().push(project);
                }
                // Each move locks the new home and the revoked node.
                tx.node_lock_all(&by_home.keys().flatten().copied().chain([node.id]).collect()).await?;
                let (mut moved, mut pending) = (0, 0);
                for (home, projects) in by_home {
                    match home {
                        Some(home) if assign_to_node(tx, home, &projects, 0).await?.is_some() => {
                            moved += projects.len();
                            // This sends the wake-up through Postgres even if another link is configured. Without a
                            // wake-up, the next poll finds the change.
                            EmbeddedCore::default().wake(tx, home).await?;
                        }
                        _ => {
                            pending += projects.len();
                            tx.placement_unassign(&projects).await?;
                        }
                    }
                }
                if is_complete {
                    tx.node_delete(node.id).await?;
                } else {
                    let unknown = Token::mint(TokenKind::Node, self.store.clock_rng());
                    tx.node_set_token(node.name.as_str(), unknown.hash()).await?;
                }
                let data = json!({ "name": node.name, "moved": moved, "waiting": pending });
                let event = event("node.revoke", &node, data);
                Ok(Outcome::Changed((Revocation { node, moved, pending }, is_complete), event))
            })
            .await
    }

    /// Returns the node of this kind with this credential.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::UnknownNode`].
    pub async fn authenticate(&self, token: &Token, kind: NodeKind) -> Result<NodeId> {
        let found = self.store.connection().await?.node_by_token(token.hash(), kind).await?;
        found.map(|(node, _)| node).ok_or(ConvergenceError::UnknownNode)
    }
}

/// Assigns the pending projects to the node, and returns their number. A project with a database stays pending until a
/// node announces a Postgres.
pub(super) async fn assign_pending(tx: &mut Connection, node: NodeId) -> Result<usize> {
    let mut pending = tx.placement_list_pending().await?;
    if !tx.node_has_database(node).await? {
        let with_database = tx.part_filter_desired(&pending, &DATABASE_PARTS).await?;
        pending.retain(|project| !with_database.contains(project));
    }
    assign_to_node(tx, node, &pending, 0).await?.ok_or(ConvergenceError::UnknownNode)?;
    Ok(pending.len())
}

fn event(name: &'static str, node: &Node, data: serde_json::Value) -> Event {
    Event::of_platform(name, node.id, data)
}
