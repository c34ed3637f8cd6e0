//! The placements of projects with a database. They need a home node with a Postgres, and have a state for each phase
//! of an operation on the database.

use kernel::ProjectId;
use store::Connection;

use crate::assignment::assign_database_home;
use crate::error::ConvergenceError;
use crate::model::{DatabaseHome, PlacementState};
use crate::part::{StateWriter, lock_or_insert};
use crate::repository::{NodeRepository as _, PlacementRecord, PlacementRepository as _};

type Result<T> = std::result::Result<T, ConvergenceError>;

/// Chooses home nodes with a Postgres, and moves placements through the states of operations on databases. Cheap to
/// clone.
///
/// A transaction that changes the database of a project first locks the project's placement with this type. A batch of
/// reports takes the same lock, so that the two cannot deadlock over other rows of the project.
#[derive(Clone)]
pub struct DatabasePlacements(StateWriter);

impl DatabasePlacements {
    pub(crate) const fn new(writer: StateWriter) -> Self {
        Self(writer)
    }

    /// Returns whether the link to the nodes is on.
    #[must_use]
    pub const fn is_linked(&self) -> bool {
        self.0.core.is_some()
    }

    /// Locks the placement of a project until the transaction ends. Returns `None` if the project has no placement or
    /// was deleted.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn lock(&self, tx: &mut Connection, project: ProjectId) -> Result<Option<PlacementRecord>> {
        Ok(tx.placement_lock(project).await?.filter(|placement| placement.ended_at.is_none()))
    }

    /// Locks the placement of a project, and creates it if there is none. Assigns a project without a home node to the
    /// node with the fewest placements among the nodes with a Postgres.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::Store`].
    pub async fn assign(&self, tx: &mut Connection, project: ProjectId) -> Result<DatabaseHome> {
        let now = self.0.store.clock_rng().now();
        let placement = lock_or_insert(tx, project, now, None).await?;
        let has_database = match placement {
            PlacementRecord { ended_at: Some(_), .. } => return Ok(DatabaseHome::Deleted),
            PlacementRecord { home: Some(home), .. } => tx.node_has_database(home).await?,
            PlacementRecord { home: None, .. } => match assign_database_home(tx, project, now).await? {
                Some(home) => {
                    self.0.wake(tx, Some(home)).await?;
                    true
                }
                None if tx.node_least_loaded(false, now).await?.is_none() => return Ok(DatabaseHome::NoNode),
                None => false,
            },
        };
        Ok(if has_database { DatabaseHome::Assigned } else { DatabaseHome::NoDatabase })
    }

    /// Moves a locked placement to the next state. Entering [`PlacementState::Reactivating`] raises the epoch by 1.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::PlacementBusy`] if the state cannot follow the current one.
    pub async fn enter(&self, tx: &mut Connection, project: ProjectId, state: PlacementState) -> Result<()> {
        if tx.placement_enter(project, state).await? { Ok(()) } else { Err(ConvergenceError::PlacementBusy) }
    }
}
