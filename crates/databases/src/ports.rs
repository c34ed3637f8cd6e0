//! The ports that other contexts implement.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::{NamedProject, OrgId, ProjectId, Time};
use store::Connection;

use crate::model::Phase;

/// The placements of projects on nodes.
#[async_trait]
pub trait Placements: Send + Sync {
    /// Returns whether the link to the nodes is on.
    fn is_linked(&self) -> bool;

    /// Locks the placement of a project until the transaction ends. Returns `None` if the project has no placement or
    /// was deleted. Every transaction that changes the database of a project begins with this lock or with
    /// [`Self::assign`]. A transaction that receives a report already holds the lock.
    async fn lock(&self, tx: &mut Connection, project: ProjectId) -> store::Result<Option<PlacementState>>;

    /// Locks the placement of a project like [`Self::lock`]. Assigns a project without a home node to a node with a
    /// Postgres.
    async fn assign(&self, tx: &mut Connection, project: ProjectId) -> store::Result<Home>;

    /// Sets the state of a locked placement to that of a phase. For [`Phase::Done`], this state is active. Entering
    /// [`Phase::Reactivating`] raises the epoch by 1.
    async fn enter(&self, tx: &mut Connection, project: ProjectId, phase: Phase) -> store::Result<()>;
}

/// The state of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementState {
    /// The project has no home node.
    Pending,
    Active,
    /// An operation on the database is in one of its phases.
    Operating,
    Suspended,
}

/// The home node of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The home node has a Postgres.
    Assigned,
    /// The home node has no Postgres, or no node has one.
    NoDatabase,
    /// There is no node.
    NoNode,
    /// The project was deleted.
    Deleted,
}

/// The part `database` of the desired state, and `deletedBackups` after the purge of the project.
/// [`crate::PartValues`] loads the value of `database`.
#[async_trait]
pub trait DesiredPart: Send + Sync {
    /// Publishes a change of the part in the caller's transaction. Returns false if the project was deleted.
    async fn publish(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool>;

    /// Removes the part in the caller's transaction.
    async fn withdraw(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()>;

    /// Publishes that the home node must delete the backups of a purged project, in the caller's transaction.
    async fn publish_deletion(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()>;

    /// Ends the deletion of the backups, in the caller's transaction. This is a no-op if it was not published.
    async fn end_deletion(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()>;
}

/// Access to organizations.
#[async_trait]
pub trait Organizations: Send + Sync {
    /// Raises a notification in the caller's transaction.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()>;
}

/// The notifications that this context raises. `reason` is a clause without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The database exceeds the size limit of the plan, and cannot be written to.
    DatabaseLimit { project: NamedProject, limit_bytes: u64 },
    /// A backup failed. `reason` also states the consequence, and can have several sentences.
    BackupFailed { project: NamedProject, reason: String },
    /// No backup contains the writes since this time, or there is no backup at all.
    BackupStale { project: NamedProject, since: Option<Time> },
    /// The database was restored to a generation.
    RestoreCompleted { project: NamedProject, epoch: i64, seq: i64 },
    /// The restore failed.
    RestoreFailed { project: NamedProject, epoch: i64, seq: i64, reason: String },
    /// The database was deleted.
    DatabaseDeleted { project: NamedProject },
}

/// The optional resources of projects.
#[async_trait]
pub trait Grants: Send + Sync {
    /// Returns whether the project has app sign-in, which keeps its users in the database.
    async fn has_auth(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool>;
}

/// The implementations of the ports.
#[derive(Clone)]
pub struct Ports {
    pub placements: Arc<dyn Placements>,
    pub part: Arc<dyn DesiredPart>,
    pub organizations: Arc<dyn Organizations>,
    pub grants: Arc<dyn Grants>,
}
