//! The use cases of operators: which nodes there are.

use std::collections::BTreeMap;

use kernel::audit::{Actor, Event};
use kernel::{NodeId, ProjectId, Token, TokenKind};
use serde_json::json;
use store::{Connection, Outcome, Store};

use super::Result;
use crate::core::{Core as _, Embedded};
use crate::error::ConvergenceError;
use crate::model::{NewNode, Node, NodeName, NodeView, Revoked};
use crate::placing::settle;
use crate::repository::{NodeRepository as _, PlacementRepository as _};

/// How often a revocation begins anew because a project came to the node meanwhile.
const ATTEMPTS: usize = 5;

/// The nodes of a deployment. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Nodes {
    store: Store,
}

impl Nodes {
    /// The nodes in this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Adds a node and hands it whatever was waiting for one.
    ///
    /// # Errors
    /// [`ConvergenceError::NodeNameTaken`].
    pub async fn add(&self, actor: &Actor, name: NodeName) -> Result<NewNode> {
        let world = self.store.world();
        let node = Node { id: world.id(), name, created_at: world.now() };
        let token = Token::mint(TokenKind::Node, world);
        self.store
            .transaction(actor, async |tx| {
                if !tx.node_insert(&node, token.hash()).await? {
                    return Err(ConvergenceError::NodeNameTaken(node.name));
                }
                adopt(tx, node.id).await?;
                let event = event("node.add", &node, json!({ "name": node.name }));
                Ok(Outcome::Changed(NewNode { node, token }, event))
            })
            .await
    }

    /// Gives the node of this name a new credential, adding the node if there is none. The old credential ends at once.
    ///
    /// # Errors
    /// [`ConvergenceError::Store`].
    pub async fn renew(&self, actor: &Actor, name: NodeName) -> Result<NewNode> {
        let token = Token::mint(TokenKind::Node, self.store.world());
        let renewed = self.store.transaction(actor, async |tx| {
            Ok::<_, ConvergenceError>(match tx.node_set_token(name.as_str(), token.hash()).await? {
                None => Outcome::Unchanged(None),
                Some(node) => {
                    let event = event("node.renew", &node, json!({ "name": node.name }));
                    Outcome::Changed(Some(NewNode { node, token }), event)
                }
            })
        });
        match renewed.await? {
            Some(node) => Ok(node),
            None => self.add(actor, name).await,
        }
    }

    /// Every node, by name.
    ///
    /// # Errors
    /// [`ConvergenceError::Store`].
    pub async fn list(&self) -> Result<Vec<NodeView>> {
        Ok(self.store.connection().await?.node_list().await?)
    }

    /// Ends the node of this name: its credential opens nothing any more, and its projects go to the nodes with the
    /// fewest. Without another node they wait for one. The machine itself goes on with what it has until it is stopped.
    ///
    /// # Errors
    /// [`ConvergenceError::NoSuchNode`].
    pub async fn revoke(&self, actor: &Actor, name: &NodeName) -> Result<Revoked> {
        for _ in 1..ATTEMPTS {
            match self.try_revoke(actor, name).await {
                Err(ConvergenceError::Store(error)) if error.violates("placements_node_id_fkey") => {}
                ended => return ended,
            }
        }
        self.try_revoke(actor, name).await
    }

    async fn try_revoke(&self, actor: &Actor, name: &NodeName) -> Result<Revoked> {
        self.store
            .transaction(actor, async |tx| {
                let unknown = || ConvergenceError::NoSuchNode(name.clone());
                let node = tx.node_find(name.as_str()).await?.ok_or_else(unknown)?;
                let projects = tx.placement_of_node(node.id).await?;
                let mut loads = tx.node_loads(node.id).await?;
                let mut homes: BTreeMap<Option<NodeId>, Vec<ProjectId>> = BTreeMap::new();
                for project in projects {
                    let least = loads.iter_mut().min_by_key(|(_, load)| *load);
                    let home = least.map(|(home, load)| {
                        *load += 1;
                        *home
                    });
                    homes.entry(home).or_default().push(project);
                }
                let (mut moved, mut waiting) = (0, 0);
                for (home, projects) in homes {
                    match home {
                        Some(home) if settle(tx, home, &projects, 0).await?.is_some() => {
                            moved += projects.len();
                            // Whatever the link is: it carries no state, and polls look by themselves.
                            Embedded::default().signal(tx, home).await?;
                        }
                        _ => {
                            waiting += projects.len();
                            tx.placement_wait(&projects).await?;
                        }
                    }
                }
                tx.node_delete(node.id).await?;
                let data = json!({ "name": node.name, "moved": moved, "waiting": waiting });
                let event = event("node.revoke", &node, data);
                Ok(Outcome::Changed(Revoked { node, moved, waiting }, event))
            })
            .await
    }

    /// The node that presents this credential.
    ///
    /// # Errors
    /// [`ConvergenceError::UnknownNode`].
    pub async fn authenticate(&self, token: &Token) -> Result<NodeId> {
        let node = self.store.connection().await?.node_by_token(token.hash()).await?;
        node.ok_or(ConvergenceError::UnknownNode)
    }
}

/// Gives the node every project that waits for one, and tells how many.
pub(super) async fn adopt(tx: &mut Connection, node: NodeId) -> Result<usize> {
    let waiting = tx.placement_waiting().await?;
    settle(tx, node, &waiting, 0).await?.ok_or(ConvergenceError::UnknownNode)?;
    Ok(waiting.len())
}

fn event(name: &'static str, node: &Node, data: serde_json::Value) -> Event {
    Event { name, org: None, target: node.id.to_string(), data }
}
