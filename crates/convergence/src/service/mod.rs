//! Operations on nodes, desired state and reports.

mod desired;
mod nodes;
mod placements;
mod report;

use std::sync::Arc;

use kernel::{Digest, NodeId, ProjectId, Token, error_chain};
use protocol::{DesiredPart, NodeInfo, Platform, ReportKind};
use store::Store;

use crate::core::Core;
use crate::databases::DatabasePlacements;
use crate::error::ConvergenceError;
use crate::model::NodeKind;
use crate::part::{FinalPartWriter, PartWriter, ProjectRemover, SourcedPartWriter, StateWriter};
use crate::ports::{PartSource, PlatformCertificates, ReportReceiver};
use crate::registry::{AlreadyRegistered, Registry};
use crate::repository::{NodeRepository as _, PartRepository as _, PlacementRepository as _, SEEN_INTERVAL_SECONDS};

pub use nodes::Nodes;
pub use placements::Placements;

type Result<T> = std::result::Result<T, ConvergenceError>;

/// Serves the desired state to nodes and accepts their reports. Cheap to clone.
#[derive(Clone)]
pub struct Convergence {
    store: Store,
    writer: StateWriter,
    platform: Arc<Platform>,
    platform_certificates: Option<Arc<dyn PlatformCertificates>>,
    registry: Arc<Registry>,
}

/// Builds a [`Convergence`] after all contexts have registered.
pub struct Builder {
    writer: StateWriter,
    platform: Platform,
    platform_certificates: Option<Arc<dyn PlatformCertificates>>,
    registry: Registry,
}

impl Builder {
    /// Registers the calling context as the owner of the part `P`, and returns the part's writer.
    ///
    /// # Errors
    /// Returns [`AlreadyRegistered::Part`].
    pub fn register_part<P: DesiredPart>(&mut self) -> std::result::Result<PartWriter<P>, AlreadyRegistered> {
        self.registry.register_part::<P>()?;
        Ok(PartWriter::new(self.writer.clone()))
    }

    /// Registers the calling context as the owner of the part `P`, whose values `source` loads, and returns the part's
    /// writer.
    ///
    /// # Errors
    /// Returns [`AlreadyRegistered::Part`].
    pub fn register_sourced_part<P: DesiredPart>(
        &mut self,
        source: Arc<dyn PartSource<P>>,
    ) -> std::result::Result<SourcedPartWriter<P>, AlreadyRegistered> {
        self.registry.register_sourced_part(source)?;
        Ok(SourcedPartWriter::new(self.writer.clone()))
    }

    /// Registers the calling context as the owner of the part `P`, which outlives its project, and returns the part's
    /// writer.
    ///
    /// # Errors
    /// Returns [`AlreadyRegistered::Part`].
    pub fn register_final_part<P: DesiredPart>(
        &mut self,
    ) -> std::result::Result<FinalPartWriter<P>, AlreadyRegistered> {
        self.registry.register_part::<P>()?;
        Ok(FinalPartWriter::new(self.writer.clone()))
    }

    /// Returns the remover. Only the context that deletes projects uses it.
    #[must_use]
    pub fn project_remover(&self) -> ProjectRemover {
        ProjectRemover::new(self.writer.clone())
    }

    /// Returns the access to placements. Only the context of databases uses it.
    #[must_use]
    pub fn database_placements(&self) -> DatabasePlacements {
        DatabasePlacements::new(self.writer.clone())
    }

    /// Returns the link to the nodes; `None` if it is off.
    #[must_use]
    pub fn core(&self) -> Option<Arc<dyn Core>> {
        self.writer.core.clone()
    }

    /// Registers the receiver of all reports of kind `K`.
    ///
    /// # Errors
    /// Returns [`AlreadyRegistered::Kind`].
    pub fn register_receiver<K: ReportKind>(
        &mut self,
        receiver: Arc<dyn ReportReceiver<K>>,
    ) -> std::result::Result<(), AlreadyRegistered> {
        self.registry.register_receiver(receiver)
    }

    /// Sets the loader of the platform's certificates. Without it, the platform has no certificates.
    pub fn set_platform_certificates(&mut self, source: Arc<dyn PlatformCertificates>) {
        self.platform_certificates = Some(source);
    }

    /// Builds the service.
    #[must_use]
    pub fn build(self) -> Convergence {
        let Self { writer, platform, platform_certificates, registry } = self;
        let (store, platform, registry) = (writer.store.clone(), Arc::new(platform), Arc::new(registry));
        Convergence { store, writer, platform, platform_certificates, registry }
    }
}

impl Convergence {
    /// Starts building the service. Without `core`, the link to the nodes is off.
    #[must_use]
    pub fn builder(store: Store, core: Option<Arc<dyn Core>>, platform: Platform) -> Builder {
        Builder {
            writer: StateWriter { store, core },
            platform,
            platform_certificates: None,
            registry: Registry::default(),
        }
    }

    /// Returns the operations on nodes.
    #[must_use]
    pub fn nodes(&self) -> Nodes {
        Nodes::new(self.store.clone())
    }

    /// Returns the link that wakes the nodes.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::NoCore`] if the link is off.
    pub fn core(&self) -> Result<&dyn Core> {
        self.writer.core.as_deref().ok_or(ConvergenceError::NoCore)
    }

    /// Returns the node of this kind with this credential. Records the time of the request, unless the recorded time is
    /// less than a minute old.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::UnknownNode`].
    pub async fn authenticate(&self, token: &Token, kind: NodeKind) -> Result<NodeId> {
        let mut connection = self.store.connection().await?;
        let found = connection.node_by_token(token.hash(), kind).await?;
        let (node, last_seen_at) = found.ok_or(ConvergenceError::UnknownNode)?;
        let now = self.store.clock_rng().now();
        if last_seen_at.is_none_or(|at| at <= now.plus_seconds(-SEEN_INTERVAL_SECONDS)) {
            // Operators only see an older time.
            if let Err(error) = connection.node_record_seen(node, now).await {
                tracing::debug!(error = %error_chain(&error), "failed to record a request of a node");
            }
        }
        Ok(node)
    }

    /// Stores the announcement of a node. A node with a Postgres then gets the pending projects.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::UnknownNode`] for a revoked node, [`ConvergenceError::NoCore`].
    pub async fn announce(&self, node: NodeId, info: NodeInfo) -> Result<()> {
        self.core()?;
        let has_database = info.database.is_some();
        if !self.store.connection().await?.node_announce(node, info).await? {
            return Err(ConvergenceError::UnknownNode);
        }
        if has_database {
            self.assign_pending(node).await?;
        }
        Ok(())
    }

    /// Returns whether the node is the project's home node.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::NoCore`].
    pub async fn is_home(&self, node: NodeId, project: ProjectId) -> Result<bool> {
        self.core()?;
        Ok(!self.store.connection().await?.placement_filter_by_node(node, &[project]).await?.is_empty())
    }

    /// Checks that the node may fetch this bundle: its desired state must contain the bundle.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::NotPlacedOnNode`] or [`ConvergenceError::NoCore`].
    pub async fn authorize_bundle(&self, node: NodeId, bundle: Digest) -> Result<()> {
        self.core()?;
        if self.store.connection().await?.bundle_is_placed(node, bundle).await? {
            return Ok(());
        }
        Err(ConvergenceError::NotPlacedOnNode)
    }
}
