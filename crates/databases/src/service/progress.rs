//! The progress of operations, as the home node reports it. Every step checks the current phase of the operation. So a
//! report that is repeated, late or out of order changes nothing.

use kernel::{OperationId, ProjectId};
use store::{Connection, Error};

use super::Databases;
use crate::model::{Generation, OperationKind, Phase};
use crate::ports::Notice;
use crate::repository::{
    DatabaseRepository as _, GenerationRecord, GenerationRepository as _, OperationRepository as _, RunningOperation,
};

/// The progress of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The node has completed a phase. `generation` is the generation that the phase `Sealing` stored.
    Completed { operation: OperationId, phase: Phase, generation: Option<GenerationRecord> },
    /// The operation cannot succeed, and the node serves the old database again.
    Failed { operation: OperationId, reason: String },
}

impl Databases {
    /// Applies the progress of an operation to a project whose placement is locked.
    pub(super) async fn progress(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        progress: Progress,
    ) -> store::Result<()> {
        let Some(running) = tx.operation_running(project).await? else { return Ok(()) };
        match progress {
            Progress::Completed { operation, phase, generation } => {
                if (operation, phase) == (running.id, running.phase) {
                    if let Some(generation) = generation {
                        self.generation_report(tx, project, generation).await?;
                    }
                    self.advance(tx, project, running).await?;
                }
            }
            Progress::Failed { operation, reason } => {
                if operation == running.id {
                    self.fail(tx, project, running, reason).await?;
                }
            }
        }
        Ok(())
    }

    async fn advance(&self, tx: &mut Connection, project: ProjectId, running: RunningOperation) -> store::Result<()> {
        let RunningOperation { id, kind, phase, seq } = running;
        let next = phase.next(kind);
        if !tx.operation_advance(id, phase, next, self.store.clock_rng().now()).await? {
            return Ok(());
        }
        match (next, kind) {
            // Delete the row at the start of this phase, so that the project no longer has a database. The node deletes
            // the database in this phase.
            (Phase::Committing, OperationKind::Delete) => tx.database_delete(project).await?,
            (Phase::Reactivating, _) => {
                let restored = restored_generation(tx, project, seq).await?;
                let restored = restored.ok_or_else(|| Error::inconsistent("the restored generation is missing"))?;
                tx.database_set_restored(project, &restored.offsite_key).await?;
            }
            _ => {}
        }
        self.ports.placements.enter(tx, project, next).await?;
        match (next, kind) {
            (Phase::Done, OperationKind::Delete) => {
                self.ports.part.withdraw(tx, project).await?;
                self.raise(tx, project, |project, _| Notice::DatabaseDeleted { project }).await
            }
            (Phase::Done, _) => {
                self.publish_observed(tx, project).await?;
                self.notify_restored(tx, project, seq).await
            }
            _ => self.publish_observed(tx, project).await,
        }
    }

    /// Ends an operation that failed. A failure in the irreversible phase does not end it, because the node repeats the
    /// phase.
    async fn fail(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        running: RunningOperation,
        reason: String,
    ) -> store::Result<()> {
        let RunningOperation { id, kind, phase, seq } = running;
        let code = if kind == OperationKind::Delete { "delete_failed" } else { "restore_failed" };
        if !self.cancel(tx, project, id, code, self.store.clock_rng().now()).await? {
            tracing::error!(%project, operation = %id, phase = phase.as_str(), reason, "operation failed after its last safe phase");
            return Ok(());
        }
        if kind == OperationKind::Delete {
            let reason = format!("{reason}. The database was not deleted and is online again");
            return self.raise(tx, project, |project, _| Notice::BackupFailed { project, reason }).await;
        }
        let Some(generation) = restored_generation(tx, project, seq).await? else { return Ok(()) };
        let (epoch, seq) = (generation.epoch, generation.seq);
        self.raise(tx, project, |project, _| Notice::RestoreFailed { project, epoch, seq, reason }).await
    }

    async fn notify_restored(&self, tx: &mut Connection, project: ProjectId, seq: Option<i64>) -> store::Result<()> {
        let Some(generation) = restored_generation(tx, project, seq).await? else { return Ok(()) };
        let (epoch, seq) = (generation.epoch, generation.seq);
        self.raise(tx, project, |project, _| Notice::RestoreCompleted { project, epoch, seq }).await
    }
}

/// Returns the generation that an operation restores. A deletion has no `seq`.
async fn restored_generation(
    tx: &mut Connection,
    project: ProjectId,
    seq: Option<i64>,
) -> store::Result<Option<Generation>> {
    match seq {
        Some(seq) => tx.generation_by_seq(project, seq).await,
        None => Ok(None),
    }
}
