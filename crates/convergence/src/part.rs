//! Writers of the desired state.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kernel::{NodeId, ProjectId, Time};
use protocol::DesiredPart;
use serde_json::{Value, json};
use store::{Connection, Store};

use crate::assignment::{DATABASE_PARTS, assign_home, raise_revision};
use crate::core::Core;
use crate::error::ConvergenceError;
use crate::repository::{
    NodeRepository as _, PartRecord, PartRepository as _, PlacementRecord, PlacementRepository as _,
};

type Result<T> = std::result::Result<T, ConvergenceError>;

/// Writes the part `P` of any project's desired state, and no other part. Cheap to clone.
///
/// [`Builder::register_part`](crate::Builder::register_part) returns it once, to the context that owns the part.
pub struct PartWriter<P> {
    writer: StateWriter,
    part: PhantomData<fn() -> P>,
}

impl<P: DesiredPart> PartWriter<P> {
    pub(crate) const fn new(writer: StateWriter) -> Self {
        Self { writer, part: PhantomData }
    }

    /// Locks the placements of these projects and, if there are several, their nodes, each in the order of their ids. A
    /// transaction that writes parts of several projects calls it before, because each write also locks the node.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn lock(&self, tx: &mut Connection, projects: &[ProjectId]) -> Result<()> {
        Ok(tx.placement_lock_all(projects).await?)
    }

    /// Writes the part with the next revision of the home node. Call it in the transaction that decides about the part.
    /// The first part of a project also assigns the project to the node with the fewest placements.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::ProjectDeleted`] after [`ProjectRemover::remove`].
    pub async fn write(&self, tx: &mut Connection, project: ProjectId, desired: &P) -> Result<()> {
        let desired = serde_json::to_value(desired).map_err(store::Error::inconsistent)?;
        self.writer.write(tx, project, P::NAME, Some(desired)).await
    }

    /// Removes the part from the desired state. This is a no-op if the part is not desired.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn remove(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        self.writer.write(tx, project, P::NAME, None).await
    }
}

impl<P> Clone for PartWriter<P> {
    fn clone(&self) -> Self {
        Self { writer: self.writer.clone(), part: PhantomData }
    }
}

impl<P: DesiredPart> fmt::Debug for PartWriter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PartWriter").field(&P::NAME).finish()
    }
}

/// Writes the part `P` of any project's desired state, but not the values of the part. Only the fact that the part is
/// desired is stored. The [`PartSource`](crate::PartSource) of the part loads its values when a node polls. So the
/// desired state holds no copy of a value that is sealed or that follows from other tables. Cheap to clone.
///
/// [`Builder::register_sourced_part`](crate::Builder::register_sourced_part) returns it once, to the context that owns
/// the part.
#[derive(Debug)]
pub struct SourcedPartWriter<P: DesiredPart>(PartWriter<P>);

impl<P: DesiredPart> SourcedPartWriter<P> {
    pub(crate) const fn new(writer: StateWriter) -> Self {
        Self(PartWriter::new(writer))
    }

    /// Gives the part the next revision of the home node, like [`PartWriter::write`]. Call it in the transaction that
    /// changes the value.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::ProjectDeleted`] after [`ProjectRemover::remove`].
    pub async fn write(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        self.0.writer.write(tx, project, P::NAME, Some(json!({}))).await
    }

    /// Removes the part from the desired state. This is a no-op if the part is not desired.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn remove(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        self.0.remove(tx, project).await
    }
}

impl<P: DesiredPart> Clone for SourcedPartWriter<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Writes the part `P`, which outlives its project. It describes the work that the home node must still do after the
/// project was purged. Cheap to clone.
///
/// [`Builder::register_final_part`](crate::Builder::register_final_part) returns it once, to the context that owns the
/// part.
pub struct FinalPartWriter<P>(PartWriter<P>);

impl<P: DesiredPart> FinalPartWriter<P> {
    pub(crate) const fn new(writer: StateWriter) -> Self {
        Self(PartWriter::new(writer))
    }

    /// Writes the part of a deleted project. Call it before [`ProjectRemover::purge`], in the same transaction. The
    /// placement is kept until [`Self::end`]. If its node is revoked, the placement moves to another node like those of
    /// other projects. It also moves if the part needs a node with a Postgres and the home node has none, but not before
    /// the end of the other final parts, whose work can be bound to the home node.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn write(&self, tx: &mut Connection, project: ProjectId, desired: &P) -> Result<()> {
        let desired = serde_json::to_value(desired).map_err(store::Error::inconsistent)?;
        self.0.writer.write_final(tx, project, P::NAME, desired).await
    }

    /// Deletes the part of a purged project, after its node has done the work that the part describes. With the last
    /// part, deletes all rows of the project. This is a no-op for a project without the part.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn end(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        let placement = tx.placement_lock(project).await?;
        if !tx.part_delete(project, P::NAME).await? {
            return Ok(());
        }
        tx.placement_purge(&[project]).await?;
        // The next relist of a node with a Postgres assigns the project.
        if let Some(home) = placement.and_then(|placement| placement.home)
            && !tx.part_filter_desired(&[project], &DATABASE_PARTS).await?.is_empty()
            && tx.part_count_desired(project).await? == 1
            && !tx.node_has_database(home).await?
        {
            tx.placement_unassign(&[project]).await?;
        }
        Ok(())
    }
}

impl<P> Clone for FinalPartWriter<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Removes deleted projects from the desired state. Cheap to clone.
#[derive(Clone)]
pub struct ProjectRemover(StateWriter);

impl ProjectRemover {
    pub(crate) const fn new(writer: StateWriter) -> Self {
        Self(writer)
    }

    /// Removes all parts of a project, of all contexts. Call it in the transaction that deletes the project. Later
    /// writes of the project's parts return [`ConvergenceError::ProjectDeleted`].
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn remove(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        self.0.remove_project(tx, project).await
    }

    /// Deletes all rows of these deleted projects, except for projects with a final part ([`FinalPartWriter`]). A node
    /// that has not polled since the deletion of a project drops the project at its next relist.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn purge(&self, tx: &mut Connection, projects: &[ProjectId]) -> Result<()> {
        Ok(tx.placement_purge(projects).await?)
    }
}

/// Writes any part.
#[derive(Clone)]
pub(crate) struct StateWriter {
    pub(crate) store: Store,
    /// The link to the nodes. `None` if it is off. The desired state is still written, so that nodes get it once the
    /// link is on.
    pub(crate) core: Option<Arc<dyn Core>>,
}

impl StateWriter {
    async fn write(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        part: &'static str,
        desired: Option<Value>,
    ) -> Result<()> {
        let at = self.store.clock_rng().now();
        let placement = match tx.placement_lock(project).await? {
            Some(placement) => placement,
            None if desired.is_none() => return Ok(()),
            None => lock_or_insert(tx, project, at, None).await?,
        };
        if desired.is_none() && !tx.part_is_desired(project, part).await? {
            return Ok(());
        }
        if placement.ended_at.is_some() {
            return Err(ConvergenceError::ProjectDeleted);
        }
        self.upsert(tx, placement, PartRecord { project, part, home: None, desired, at }).await
    }

    async fn write_final(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        part: &'static str,
        desired: Value,
    ) -> Result<()> {
        let at = self.store.clock_rng().now();
        let mut placement = lock_or_insert(tx, project, at, Some(at)).await?;
        if let Some(home) = placement.home
            && DATABASE_PARTS.contains(&part)
            && tx.part_count_desired(project).await? == 0
            && !tx.node_has_database(home).await?
        {
            tx.placement_unassign(&[project]).await?;
            placement.home = None;
        }
        self.upsert(tx, placement, PartRecord { project, part, home: None, desired: Some(desired), at }).await
    }

    /// Writes a part of a locked placement with the next revision of its home node. Assigns a home node if the
    /// placement has none.
    async fn upsert(&self, tx: &mut Connection, placement: PlacementRecord, part: PartRecord) -> Result<()> {
        let home = match placement.home {
            Some(node) => raise_revision(tx, node, 1).await?,
            None => self.assign(tx, &part).await?,
        };
        tx.part_upsert(PartRecord { home, ..part }).await?;
        self.wake(tx, home.map(|(node, _)| node)).await
    }

    /// Assigns a home node to the pending project of a part that is being written. Returns the node and its revision
    /// for this part.
    async fn assign(&self, tx: &mut Connection, part: &PartRecord) -> Result<Option<(NodeId, i64)>> {
        let has_database = DATABASE_PARTS.contains(&part.part)
            || !tx.part_filter_desired(&[part.project], &DATABASE_PARTS).await?.is_empty();
        Ok(assign_home(tx, part.project, has_database, part.at).await?)
    }

    async fn remove_project(&self, tx: &mut Connection, project: ProjectId) -> Result<()> {
        let at = self.store.clock_rng().now();
        let placement = match tx.placement_lock(project).await? {
            Some(placement) => placement,
            // A context that concurrently writes a first part waits for this row, and is then rejected.
            None if tx.placement_insert(project, at, Some(at)).await? => return Ok(()),
            None => lock_placement(tx, project).await?,
        };
        let PlacementRecord { home, ended_at: None, .. } = placement else { return Ok(()) };
        let parts = tx.part_count_desired(project).await?;
        let revision = match home {
            Some(node) => raise_revision(tx, node, parts).await?.map(|(_, revision)| revision),
            None => None,
        };
        tx.part_remove_all(project, revision.map(|last| last - parts), at).await?;
        tx.placement_end(project, at).await?;
        self.wake(tx, home).await
    }

    pub(crate) async fn wake(&self, tx: &mut Connection, node: Option<NodeId>) -> Result<()> {
        if let (Some(node), Some(core)) = (node, &self.core) {
            core.wake(tx, node).await?;
        }
        Ok(())
    }
}

/// Locks the placement of a project. If there is none, inserts one that is pending, or that ended at `ended_at`.
pub(crate) async fn lock_or_insert(
    tx: &mut Connection,
    project: ProjectId,
    at: Time,
    ended_at: Option<Time>,
) -> Result<PlacementRecord> {
    if let Some(placement) = tx.placement_lock(project).await? {
        return Ok(placement);
    }
    tx.placement_insert(project, at, ended_at).await?;
    lock_placement(tx, project).await
}

/// Locks the placement that this transaction or a concurrent one inserted.
async fn lock_placement(tx: &mut Connection, project: ProjectId) -> Result<PlacementRecord> {
    let missing = || store::Error::inconsistent("the inserted placement is missing");
    Ok(tx.placement_lock(project).await?.ok_or_else(missing)?)
}
