//! The databases service. Each submodule is one topic.

mod connect;
mod export;
mod generation;
mod limits;
mod observation;
mod operation;
mod progress;
mod purge;
mod token;
mod wait;

use kernel::{AbuseLimits, Limits, NamedProject, OrgId, Plan, ProjectId};
use store::{Connection, Store};

use crate::error::DatabaseError;
use crate::ports::{Notice, PlacementState, Ports};
use crate::repository::ProjectRepository as _;

pub use progress::Progress;

type Result<T> = std::result::Result<T, DatabaseError>;

const DAY: i64 = 24 * 3600;

/// The project of a request, with its organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub org: OrgId,
    pub plan: Plan,
    pub project: ProjectId,
}

/// The databases service. Cheap to clone.
#[derive(Clone)]
pub struct Databases {
    store: Store,
    limits: Limits,
    abuse_limits: AbuseLimits,
    ports: Ports,
}

impl Databases {
    /// Creates the service.
    #[must_use]
    pub fn new(store: Store, limits: Limits, ports: Ports) -> Self {
        Self { store, limits, abuse_limits: AbuseLimits::default(), ports }
    }

    /// Replaces the limits against abuse.
    #[must_use]
    pub fn with_abuse_limits(self, abuse_limits: AbuseLimits) -> Self {
        Self { abuse_limits, ..self }
    }

    /// Locks the placement of a project. A project without a placement has no database.
    async fn lock(&self, tx: &mut Connection, project: ProjectId) -> Result<PlacementState> {
        self.ports.placements.lock(tx, project).await?.ok_or(DatabaseError::NoDatabase)
    }

    /// Gives the part the next revision and publishes it, in the transaction that changes the part. Returns the
    /// revision.
    async fn publish(&self, tx: &mut Connection, project: ProjectId) -> Result<i64> {
        let revision = tx.revision_raise(project).await?;
        if self.ports.part.publish(tx, project).await? { Ok(revision) } else { Err(DatabaseError::ProjectNotFound) }
    }

    /// Publishes the part of a locked placement, in a transaction that does not belong to a request.
    async fn publish_observed(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()> {
        tx.revision_raise(project).await?;
        self.ports.part.publish(tx, project).await.map(drop)
    }

    /// Notifies the organization of a project, unless the project was deleted.
    async fn raise(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        notice: impl FnOnce(NamedProject, Plan) -> Notice,
    ) -> store::Result<()> {
        let Some(owner) = tx.project_plan(project).await? else { return Ok(()) };
        let project = NamedProject { id: project, name: owner.name };
        self.ports.organizations.raise(tx, owner.org, notice(project, owner.plan)).await
    }
}
