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
    /// already suspended. `path` is the slug of the organization and the name of the project, for the audit event.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::PlacementNotFound`], [`ConvergenceError::PlacementBusy`] during an operation on the
    /// database.
    pub async fn suspend(&self, actor: &Actor, project: ProjectId, path: (&str, &str)) -> Result<bool> {
        let next = |placement: PlacementRecord| match placement.state {
            PlacementState::Active | PlacementState::Pending => Ok(Some(PlacementState::Suspended)),
            PlacementState::Suspended => Ok(None),
            _ => Err(ConvergenceError::PlacementBusy),
        };
        self.change(actor, project, path, "placement.suspend", next).await
    }

    /// Ends the suspension of a project. Returns false if it was not suspended. `path` is as for [`Self::suspend`].
    ///
    /// # Errors
    /// Returns [`ConvergenceError::PlacementNotFound`].
    pub async fn resume(&self, actor: &Actor, project: ProjectId, path: (&str, &str)) -> Result<bool> {
        let next = |placement: PlacementRecord| {
            let resumed = if placement.home.is_some() { PlacementState::Active } else { PlacementState::Pending };
            Ok((placement.state == PlacementState::Suspended).then_some(resumed))
        };
        self.change(actor, project, path, "placement.resume", next).await
    }

    /// Moves a placement to the state that `next` returns, and publishes the part `database`, which contains the state.
    /// Returns false if `next` returns no state.
    async fn change(
        &self,
        actor: &Actor,
        project: ProjectId,
        (org, name): (&str, &str),
        event: &'static str,
        next: impl FnOnce(PlacementRecord) -> Result<Option<PlacementState>>,
    ) -> Result<bool> {
        let at = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let placement = tx.placement_lock(project).await?.filter(|placement| placement.ended_at.is_none());
                let placement = placement.ok_or(ConvergenceError::PlacementNotFound)?;
                let Some(state) = next(placement)? else { return Ok(Outcome::Unchanged(false)) };
                if !tx.placement_enter(project, state).await? {
                    return Err(store::Error::inconsistent("a locked placement changed its state").into());
                }
                if let Some(home) = placement.home
                    && tx.part_is_desired(project, Database::NAME).await?
                    && let Some((home, revision)) = raise_revision(tx, home, 1).await?
                {
                    tx.part_set_revision(project, Database::NAME, revision, at).await?;
                    // This sends the wake-up through Postgres even if another link is configured. Without a wake-up,
                    // the next poll finds the change.
                    EmbeddedCore::default().wake(tx, home).await?;
                }
                let event = Event::of_platform(event, project, json!({ "org": org, "project": name }));
                Ok(Outcome::Changed(true, event))
            })
            .await
    }
}
