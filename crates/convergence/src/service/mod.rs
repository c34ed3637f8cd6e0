//! The use cases of nodes, desired state and reports.

mod desired;
mod nodes;
mod report;

use std::sync::Arc;

use kernel::{Digest, NodeId, ProjectId};
use store::{Connection, Store};

use crate::core::Core;
use crate::error::ConvergenceError;
use crate::model::{PlacementState, Platform, Site};
use crate::ports::Deployments;
use crate::repository::{ConvergenceRepository as _, Placement};

pub use nodes::Nodes;

type Result<T> = std::result::Result<T, ConvergenceError>;

/// What nodes are to serve, and what they report. Cheap to clone.
#[derive(Clone)]
pub struct Convergence {
    store: Store,
    /// None: off. What is desired is written down all the same, for the day it is turned on again.
    core: Option<Arc<dyn Core>>,
    platform: Arc<Platform>,
    deployments: Arc<dyn Deployments>,
}

impl Convergence {
    /// The service on this database, over this link to the nodes or without one.
    #[must_use]
    pub fn new(
        store: Store,
        core: Option<Arc<dyn Core>>,
        platform: Platform,
        deployments: Arc<dyn Deployments>,
    ) -> Self {
        Self { store, core, platform: Arc::new(platform), deployments }
    }

    /// The nodes themselves.
    #[must_use]
    pub fn nodes(&self) -> Nodes {
        Nodes::new(self.store.clone())
    }

    /// The link to the nodes.
    ///
    /// # Errors
    /// [`ConvergenceError::NoCore`] while it is off.
    pub fn core(&self) -> Result<&dyn Core> {
        self.core.as_deref().ok_or(ConvergenceError::NoCore)
    }

    /// Writes what is now desired of a project, inside the transaction that decides it; the first time this also
    /// chooses its home, the node with the fewest placements.
    ///
    /// # Errors
    /// [`ConvergenceError::Store`].
    pub async fn converge(&self, tx: &mut Connection, project: ProjectId, desired: Option<Site>) -> Result<()> {
        let home = match tx.placement_home(project).await?.flatten() {
            Some(node) => tx.node_raise_revision(node, 1).await?.map(|revision| (node, revision)),
            None => None,
        };
        let home = match home {
            Some(home) => Some(home),
            None => new_home(tx).await?,
        };
        let state = if home.is_some() { PlacementState::Active } else { PlacementState::Pending };
        let at = self.store.world().now();
        tx.placement_upsert(&Placement { project, home, state, desired, at }).await?;
        if let (Some((node, _)), Some(core)) = (home, &self.core) {
            core.signal(tx, node).await?;
        }
        Ok(())
    }

    /// Whether the project is at home on the node.
    ///
    /// # Errors
    /// [`ConvergenceError::NoCore`].
    pub async fn is_home(&self, node: NodeId, project: ProjectId) -> Result<bool> {
        self.core()?;
        Ok(!self.store.connection().await?.placement_at(node, &[project]).await?.is_empty())
    }

    /// Whether the node may fetch this bundle: it is to serve something out of it.
    ///
    /// # Errors
    /// [`ConvergenceError::NotPlacedHere`].
    pub async fn bundle_for(&self, node: NodeId, bundle: Digest) -> Result<()> {
        self.core()?;
        if self.store.connection().await?.bundle_is_placed(node, bundle).await? {
            return Ok(());
        }
        Err(ConvergenceError::NotPlacedHere)
    }
}

/// The node with the fewest placements, and its next revision. One that is revoked in this moment is passed over.
async fn new_home(tx: &mut Connection) -> Result<Option<(NodeId, i64)>> {
    while let Some(node) = tx.node_least_loaded().await? {
        if let Some(revision) = tx.node_raise_revision(node, 1).await? {
            return Ok(Some((node, revision)));
        }
    }
    Ok(None)
}
