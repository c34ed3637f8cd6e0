//! Writing parts of the desired state.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kernel::{NodeId, ProjectId};
use protocol::DesiredPart;
use serde_json::Value;
use store::{Connection, Store};

use crate::core::Core;
use crate::error::ConvergenceError;
use crate::placing::{assign, next_revision};
use crate::repository::{PartRecord, PartRepository as _, PlacementRepository as _};

type Result<T> = std::result::Result<T, ConvergenceError>;

/// The right to write the part `P` of projects' desired state, and no other part. There is one for each part:
/// [`Builder::own`](crate::Builder::own) gives it to the context that owns the part. Cheap to clone.
pub struct Part<P> {
    writer: Writer,
    part: PhantomData<fn() -> P>,
}

impl<P: DesiredPart> Part<P> {
    pub(crate) const fn new(writer: Writer) -> Self {
        Self { writer, part: PhantomData }
    }

    /// Writes what is now desired of a project, with the next revision of its node, inside the transaction that decides
    /// it. The first part of a project also chooses its home, the node with the fewest placements.
    ///
    /// # Errors
    /// [`ConvergenceError::Store`].
    pub async fn write(&self, tx: &mut Connection, project: ProjectId, desired: &P) -> Result<()> {
        let desired = serde_json::to_value(desired).map_err(store::Error::inconsistent)?;
        self.writer.write(tx, project, P::NAME, Some(desired)).await
    }

    /// The part is no longer desired.
    ///
    /// # Errors
    /// [`ConvergenceError::Store`].
    pub async fn remove(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        self.writer.write(tx, project, P::NAME, None).await
    }
}

impl<P> Clone for Part<P> {
    fn clone(&self) -> Self {
        Self { writer: self.writer.clone(), part: PhantomData }
    }
}

impl<P: DesiredPart> fmt::Debug for Part<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Part").field(&P::NAME).finish()
    }
}

/// The right to end the desired state of projects that are deleted. Cheap to clone.
#[derive(Clone)]
pub struct Removal(Writer);

impl Removal {
    pub(crate) const fn new(writer: Writer) -> Self {
        Self(writer)
    }

    /// Ends every part of a project, whichever context owns it, inside the transaction that deletes the project.
    ///
    /// # Errors
    /// [`ConvergenceError::Store`].
    pub async fn remove(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        self.0.remove_project(tx, project).await
    }
}

/// Writes any part.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) store: Store,
    /// None: off. The desired state is written nevertheless, for the day it is turned on again.
    pub(crate) core: Option<Arc<dyn Core>>,
}

impl Writer {
    async fn write(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        part: &'static str,
        desired: Option<Value>,
    ) -> Result<()> {
        let at = self.store.world().now();
        let home = match tx.placement_home(project).await? {
            Some(Some(node)) => next_revision(tx, node, 1).await?,
            Some(None) => assign(tx, project).await?,
            None => {
                // Two contexts may write the first parts of a project concurrently: the second waits for the row here.
                tx.placement_insert(project, at).await?;
                match tx.placement_home(project).await?.flatten() {
                    Some(node) => next_revision(tx, node, 1).await?,
                    None => assign(tx, project).await?,
                }
            }
        };
        tx.part_upsert(PartRecord { project, part, home, desired, at }).await?;
        self.wake(tx, home.map(|(node, _)| node)).await
    }

    async fn remove_project(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        let Some(node) = tx.placement_home(project).await? else { return Ok(()) };
        let parts = tx.part_count_desired(project).await?;
        let revision = match node {
            Some(node) => next_revision(tx, node, parts).await?.map(|(_, revision)| revision),
            None => None,
        };
        tx.part_remove_all(project, revision.map(|last| last - parts), self.store.world().now()).await?;
        self.wake(tx, node).await
    }

    async fn wake(&self, tx: &mut Connection, node: Option<NodeId>) -> Result<()> {
        if let (Some(node), Some(core)) = (node, &self.core) {
            core.signal(tx, node).await?;
        }
        Ok(())
    }
}
