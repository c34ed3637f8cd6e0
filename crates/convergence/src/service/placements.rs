//! Operations on placements, for operators.

use kernel::ProjectId;
use kernel::audit::{Actor, Event};
use protocol::{Database, DesiredPart as _};
use serde_json::json;
use store::{Connection, Outcome, Store};

use super::Result;
use crate::assignment::raise_revision;
use crate::core::{Core as _, EmbeddedCore};
use crate::error::ConvergenceError;
use crate::model::PlacementState;
use crate::repository::{PartRepository as _, PlacementRecord, PlacementRepository as _};

/// The operations on the placements of an installation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Placements {
    store: Store,
}

impl Placements {
    /// Returns the operations on the placements in this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Suspends a project: its home node keeps the database and refuses all logins. Returns false if the project was
    /// already suspended.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::PlacementNotFound`], [`ConvergenceError::PlacementBusy`] during an operation on the
    /// database.
    pub async fn suspend(&self, actor: &Actor, project: ProjectId) -> Result<bool> {
        let from = |state| matches!(state, PlacementState::Active | PlacementState::Pending);
        self.change(actor, project, "placement.suspend", from, |_| PlacementState::Suspended).await
    }

    /// Ends the suspension of a project. Returns false if it was not suspended.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::PlacementNotFound`].
    pub async fn resume(&self, actor: &Actor, project: ProjectId) -> Result<bool> {
        let to = |has_home| if has_home { PlacementState::Active } else { PlacementState::Pending };
        self.change(actor, project, "placement.resume", |state| state == PlacementState::Suspended, to).await
    }

    /// Changes the state of a placement, and publishes the part `database`, which contains the state.
    async fn change(
        &self,
        actor: &Actor,
        project: ProjectId,
        name: &'static str,
        is_expected: impl FnOnce(PlacementState) -> bool,
        to: impl FnOnce(bool) -> PlacementState,
    ) -> Result<bool> {
        let at = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let placement = tx.placement_lock(project).await?.filter(|placement| placement.ended_at.is_none());
                let PlacementRecord { home, state, .. } = placement.ok_or(ConvergenceError::PlacementNotFound)?;
                let next = to(home.is_some());
                if !is_expected(state) {
                    let is_operating = next == PlacementState::Suspended && state != next;
                    return if is_operating {
                        Err(ConvergenceError::PlacementBusy)
                    } else {
                        Ok(Outcome::Unchanged(false))
                    };
                }
                if !tx.placement_enter(project, next).await? {
                    return Err(store::Error::inconsistent("a locked placement changed its state").into());
                }
                if let Some(home) = home
                    && tx.part_is_desired(project, Database::NAME).await?
                    && let Some((home, revision)) = raise_revision(tx, home, 1).await?
                {
                    tx.part_set_revision(project, Database::NAME, revision, at).await?;
                    // This sends the wake-up through Postgres even if another link is configured. Without a wake-up,
                    // the next poll finds the change.
                    EmbeddedCore::default().wake(tx, home).await?;
                }
                let event = Event::of_platform(name, project, json!({}));
                Ok(Outcome::Changed(true, event))
            })
            .await
    }
}
