//! The use cases of nodes and desired state.

use std::sync::Arc;
use std::time::Duration;

use kernel::audit::{Actor, Event};
use kernel::{Digest, NodeId, ProjectId, Token, TokenKind};
use serde_json::json;
use store::{Connection, Listener, Outcome, Store};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::error::ConvergenceError;
use crate::model::{Desired, NewNode, Node, NodeName, PlacementState, Site};
use crate::repository::{ConvergenceRepository as _, Placement};

/// Announces a node whose desired state changed.
const CHANNEL: &str = "convergence";

/// How long a waiting poll trusts the wake-up before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The longest that a poll is kept waiting.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Nodes and what they are to serve. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Convergence {
    store: Store,
    listener: Option<Arc<Listener>>,
}

type Result<T> = std::result::Result<T, ConvergenceError>;

impl Convergence {
    /// The service on this database, without a process that waits for changes.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, listener: None }
    }

    /// The same service, woken by Postgres for [`Convergence::desired`]. Needs a tokio runtime.
    #[must_use]
    pub fn listening(self) -> Self {
        let listener = Some(Arc::new(self.store.listen(CHANNEL)));
        Self { listener, ..self }
    }

    /// Adds a node and hands it whatever was waiting for one.
    ///
    /// # Errors
    /// [`ConvergenceError::NodeNameTaken`].
    pub async fn node_add(&self, actor: &Actor, name: NodeName) -> Result<NewNode> {
        let world = self.store.world();
        let node = Node { id: world.id(), name, created_at: world.now() };
        let token = Token::mint(TokenKind::Node, world);
        self.store
            .transaction(actor, async |tx| {
                if !tx.node_insert(&node, token.hash()).await? {
                    return Err(ConvergenceError::NodeNameTaken(node.name));
                }
                adopt(tx, node.id).await?;
                let event = node_event("node.add", &node);
                Ok(Outcome::Changed(NewNode { node, token }, event))
            })
            .await
    }

    /// Gives the node of this name a new credential, adding the node if there is none. The old credential ends at once.
    ///
    /// # Errors
    /// [`ConvergenceError::Store`].
    pub async fn node_renew(&self, actor: &Actor, name: NodeName) -> Result<NewNode> {
        let token = Token::mint(TokenKind::Node, self.store.world());
        let renewed = self.store.transaction(actor, async |tx| {
            Ok::<_, ConvergenceError>(match tx.node_set_token(name.as_str(), token.hash()).await? {
                None => Outcome::Unchanged(None),
                Some(node) => {
                    let event = node_event("node.renew", &node);
                    Outcome::Changed(Some(NewNode { node, token }), event)
                }
            })
        });
        match renewed.await? {
            Some(node) => Ok(node),
            None => self.node_add(actor, name).await,
        }
    }

    /// The node that presents this credential.
    ///
    /// # Errors
    /// [`ConvergenceError::UnknownNode`].
    pub async fn authenticate(&self, token: &Token) -> Result<NodeId> {
        let node = self.store.connection().await?.node_by_token(token.hash()).await?;
        node.ok_or(ConvergenceError::UnknownNode)
    }

    /// Writes what is now desired of a project, inside the transaction that decides it; the first time this also
    /// chooses its home, the node with the fewest placements.
    ///
    /// # Errors
    /// [`ConvergenceError::Store`].
    pub async fn converge(&self, tx: &mut Connection, project: ProjectId, desired: Option<Site>) -> Result<()> {
        let node = match tx.placement_home(project).await?.flatten() {
            Some(node) => Some(node),
            None => tx.node_least_loaded().await?,
        };
        let home = match node {
            Some(node) => Some((node, tx.node_next_revision(node).await?)),
            None => None,
        };
        let state = if home.is_some() { PlacementState::Active } else { PlacementState::Pending };
        let at = self.store.world().now();
        tx.placement_upsert(&Placement { project, home, state, desired, at }).await?;
        if let Some(node) = node {
            store::notify(tx, CHANNEL, &node.to_string()).await?;
        }
        Ok(())
    }

    /// What the node is to serve: everything for `since` 0, else what changed after that revision, waiting up to
    /// `wait` for the first change.
    ///
    /// # Errors
    /// [`ConvergenceError::UnknownNode`] for a node that is gone.
    pub async fn desired(&self, node: NodeId, since: i64, wait: Duration) -> Result<Desired> {
        let until = Instant::now() + wait.min(LONGEST_WAIT);
        // Subscribed before the first look, so that no change falls between looking and waiting.
        let mut signals = self.listener.as_ref().map(|listener| listener.subscribe());
        loop {
            let mut connection = self.store.connection().await?;
            let desired = connection.desired_since(node, since).await?.ok_or(ConvergenceError::UnknownNode)?;
            drop(connection);
            if since == 0 && self.adopt_waiting(node).await? {
                continue;
            }
            if since == 0 || desired.revision != since || Instant::now() >= until {
                return Ok(desired);
            }
            woken(signals.as_mut(), node, until.min(Instant::now() + LOOK_AGAIN)).await;
        }
    }

    /// Gives the node whatever waits for one. A project may be deployed for the first time in the very moment in which the
    /// first node is added, and neither see the other; the next full listing finds it. Tells whether there was anything.
    async fn adopt_waiting(&self, node: NodeId) -> Result<bool> {
        if !self.store.connection().await?.placement_is_waiting().await? {
            return Ok(false);
        }
        self.store
            .transaction(&Actor::operator("convergence"), async |tx| {
                let adopted = adopt(tx, node).await?;
                if adopted == 0 {
                    return Ok(Outcome::Unchanged(false));
                }
                let (target, data) = (node.to_string(), json!({ "projects": adopted }));
                Ok(Outcome::Changed(true, Event { name: "node.adopt", org: None, target, data }))
            })
            .await
    }

    /// Whether the node may fetch this bundle: it is to serve something out of it.
    ///
    /// # Errors
    /// [`ConvergenceError::NotPlacedHere`].
    pub async fn bundle_for(&self, node: NodeId, bundle: Digest) -> Result<()> {
        if self.store.connection().await?.bundle_is_placed(node, bundle).await? {
            return Ok(());
        }
        Err(ConvergenceError::NotPlacedHere)
    }
}

/// Gives the node every project that waits for one, and tells how many.
async fn adopt(tx: &mut Connection, node: NodeId) -> Result<usize> {
    let waiting = tx.placement_waiting().await?;
    for &project in &waiting {
        let revision = tx.node_next_revision(node).await?;
        tx.placement_adopt(project, node, revision).await?;
    }
    Ok(waiting.len())
}

/// Waits until `node` may have changed, at the latest until `until`.
async fn woken(signals: Option<&mut broadcast::Receiver<String>>, node: NodeId, until: Instant) {
    let Some(signals) = signals else {
        return tokio::time::sleep_until(until).await;
    };
    let node = node.to_string();
    let concerns_us = async {
        loop {
            match signals.recv().await {
                Ok(payload) if !payload.is_empty() && payload != node => {}
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    if tokio::time::timeout_at(until, concerns_us).await.is_err() {
        tracing::trace!("no wake-up; looking again");
    }
}

fn node_event(name: &'static str, node: &Node) -> Event {
    Event { name, org: None, target: node.id.to_string(), data: json!({ "name": node.name }) }
}
