//! The use cases of nodes, desired state and reports.

mod desired;
mod nodes;
mod report;

use std::sync::Arc;

use kernel::{Digest, NodeId, ProjectId};
use protocol::{DesiredPart, Platform, ReportKind};
use store::Store;

use crate::core::Core;
use crate::error::ConvergenceError;
use crate::part::{Part, Removal, Writer};
use crate::ports::ReportReceiver;
use crate::registry::{AlreadyRegistered, Registry};
use crate::repository::{PartRepository as _, PlacementRepository as _};

pub use nodes::Nodes;

type Result<T> = std::result::Result<T, ConvergenceError>;

/// The desired state of nodes, and their reports. Cheap to clone.
#[derive(Clone)]
pub struct Convergence {
    store: Store,
    writer: Writer,
    platform: Arc<Platform>,
    registry: Arc<Registry>,
}

/// A [`Convergence`] that contexts still register with.
pub struct Builder {
    writer: Writer,
    platform: Platform,
    registry: Registry,
}

impl Builder {
    /// Gives the part `P` of the desired state to the context that owns it, once.
    ///
    /// # Errors
    /// [`AlreadyRegistered::Part`].
    pub fn own<P: DesiredPart>(&mut self) -> std::result::Result<Part<P>, AlreadyRegistered> {
        self.registry.own::<P>()?;
        Ok(Part::new(self.writer.clone()))
    }

    /// Gives the context that deletes projects the right to end their desired state.
    #[must_use]
    pub fn removal(&self) -> Removal {
        Removal::new(self.writer.clone())
    }

    /// Hands every report of kind `K` to this receiver.
    ///
    /// # Errors
    /// [`AlreadyRegistered::Kind`].
    pub fn receive<K: ReportKind>(
        &mut self,
        receiver: Arc<dyn ReportReceiver<K>>,
    ) -> std::result::Result<(), AlreadyRegistered> {
        self.registry.receive(receiver)
    }

    /// The service.
    #[must_use]
    pub fn build(self) -> Convergence {
        let Self { writer, platform, registry } = self;
        let (store, platform, registry) = (writer.store.clone(), Arc::new(platform), Arc::new(registry));
        Convergence { store, writer, platform, registry }
    }
}

impl Convergence {
    /// The service on this database, over this link to the nodes or without one.
    #[must_use]
    pub fn builder(store: Store, core: Option<Arc<dyn Core>>, platform: Platform) -> Builder {
        Builder { writer: Writer { store, core }, platform, registry: Registry::default() }
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
        self.writer.core.as_deref().ok_or(ConvergenceError::NoCore)
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
