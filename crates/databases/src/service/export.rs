//! Exports: diagnostic images, which a node makes on request.

use std::time::Duration;

use kernel::audit::{Actor, Event};
use kernel::{ExportId, ProjectId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Databases, Result, Target};
use crate::error::DatabaseError;
use crate::model::DatabaseExport;
use crate::ports::PlacementState;
use crate::repository::{DatabaseRepository as _, ExportRepository as _, ExportState, LimitedOperation};

/// The longest time for an export. After it, the node stops the export (`ProgramLimits::export_time` in `node`).
const TIMEOUT: Duration = Duration::from_secs(600);
pub(super) const TIMEOUT_SECONDS: i64 = TIMEOUT.as_secs().cast_signed();

pub(super) const TIMED_OUT: &str = "the node did not finish it within 10 minutes";

impl Databases {
    /// Makes a diagnostic image of the database, and waits for it. If the caller disconnects, the node still completes
    /// the export.
    ///
    /// # Errors
    /// Returns [`DatabaseError::NoDatabase`], [`DatabaseError::Suspended`], or [`DatabaseError::OperationInProgress`],
    /// also during another export. Returns [`DatabaseError::NoCore`], [`DatabaseError::NoHomeNode`],
    /// [`DatabaseError::NoNodeAdmin`], [`DatabaseError::ExportFailed`], [`DatabaseError::DailyLimit`] or
    /// [`DatabaseError::ProjectNotFound`].
    pub async fn export(&self, actor: &Actor, target: Target) -> Result<DatabaseExport> {
        let Target { org, project, .. } = target;
        self.require_link()?;
        let clock_rng = self.store.clock_rng();
        let now = clock_rng.now();
        let export: ExportId = clock_rng.id_at(now);
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let state = self.lock(tx, project).await?;
                tx.database_find(project).await?.ok_or(DatabaseError::NoDatabase)?;
                self.require_running(tx, project, state).await?;
                tx.export_fail_pending(project, now.plus_seconds(-TIMEOUT_SECONDS), TIMED_OUT, now).await?;
                if tx.export_is_pending(project).await? {
                    return Err(DatabaseError::OperationInProgress);
                }
                self.ensure_below_daily_limit(tx, project, LimitedOperation::Export, now).await?;
                tx.export_insert(project, export, now).await?;
                self.publish(tx, project).await?;
                Ok(Outcome::Changed((), Event::in_org("database.export", org, project, json!({ "export": export }))))
            })
            .await?;
        let poll = async |connection: &mut Connection| -> Result<Option<DatabaseExport>> {
            connection.export_state(export).await?.and_then(ended).transpose()
        };
        match self.wait(project, TIMEOUT, poll).await? {
            Some(result) => Ok(result),
            None => self.export_fail_unfinished(project, export).await,
        }
    }

    /// Stores the result of an export, in the transaction that accepts the report. Ignores the report if the export has
    /// already ended.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn export_report(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        export: ExportId,
        result: std::result::Result<DatabaseExport, String>,
    ) -> store::Result<()> {
        if tx.export_end(project, export, result, self.store.clock_rng().now()).await? {
            self.publish_observed(tx, project).await?;
        }
        Ok(())
    }

    /// Ends an export at its timeout, unless its result has arrived.
    async fn export_fail_unfinished(&self, project: ProjectId, export: ExportId) -> Result<DatabaseExport> {
        let work = async |tx: &mut Connection| {
            self.ports.placements.lock(tx, project).await?;
            self.export_report(tx, project, export, Err(TIMED_OUT.to_owned())).await?;
            tx.export_state(export).await
        };
        let state = self.store.transaction_unaudited(work).await?;
        state.and_then(ended).unwrap_or(Err(DatabaseError::ProjectNotFound))
    }

    /// Checks that the placement serves the database, which is required for an export and for an operation.
    pub(super) async fn require_running(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        state: PlacementState,
    ) -> Result<()> {
        match state {
            PlacementState::Suspended => return Err(DatabaseError::Suspended),
            PlacementState::Operating => return Err(DatabaseError::OperationInProgress),
            PlacementState::Pending => return Err(DatabaseError::NoHomeNode),
            PlacementState::Active => {}
        }
        let address = tx.database_address(project).await?.ok_or(DatabaseError::NoDatabase)?;
        super::connect::require_server(&address).map(drop)
    }
}

/// Returns the result of an export, or `None` if it has not ended.
fn ended(state: ExportState) -> Option<Result<DatabaseExport>> {
    match state {
        ExportState::Pending => None,
        ExportState::Stored(export) => Some(Ok(export)),
        ExportState::Failed(reason) => Some(Err(DatabaseError::ExportFailed(reason))),
    }
}
