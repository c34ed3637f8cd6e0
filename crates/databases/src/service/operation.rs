//! Starting and aborting operations on the whole database. `progress.rs` advances them.

use kernel::audit::{Actor, Event};
use kernel::{DatabaseId, OperationId, ProjectId, Time};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Databases, Result, Target};
use crate::error::DatabaseError;
use crate::model::{DeleteRequest, Operation, OperationKind, OperationStarted, Phase, RestoreRequest};
use crate::repository::{
    DatabaseRepository as _, ExportRepository as _, LimitedOperation, OperationRecord, OperationRepository as _,
};

/// The terminal code of an aborted operation.
const ABORTED: &str = "aborted";

impl Databases {
    /// Starts to replace the content of the database with that of a listed generation.
    ///
    /// # Errors
    /// Returns [`DatabaseError::GenerationNotFound`], [`DatabaseError::DatabaseRequired`],
    /// [`DatabaseError::Suspended`], [`DatabaseError::OperationInProgress`], [`DatabaseError::NoCore`],
    /// [`DatabaseError::NoHomeNode`], [`DatabaseError::NoNodeAdmin`], [`DatabaseError::DailyLimit`] or
    /// [`DatabaseError::ProjectNotFound`].
    pub async fn restore(&self, actor: &Actor, target: Target, request: RestoreRequest) -> Result<OperationStarted> {
        self.require_link()?;
        let Target { org, project, .. } = target;
        let RestoreRequest { epoch, seq } = request;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let state = self.ports.placements.lock(tx, project).await?;
                let listed = self.listed(tx, project).await?;
                if !listed.iter().any(|listed| (listed.epoch, listed.seq) == (epoch, seq)) {
                    return Err(DatabaseError::GenerationNotFound);
                }
                let state = state.ok_or(DatabaseError::ProjectNotFound)?;
                let database = tx.database_find(project).await?.ok_or(DatabaseError::DatabaseRequired)?;
                self.require_running(tx, project, state).await?;
                let id = self.start(tx, project, database, OperationKind::RestoreGeneration, Some(seq)).await?;
                let data = json!({ "operation": id, "epoch": epoch, "seq": seq });
                let event = Event::in_org("database.restore", org, project, data);
                Ok(Outcome::Changed(OperationStarted { operation_id: id }, event))
            })
            .await
    }

    /// Starts to delete the database. `name` is the name of the project.
    ///
    /// # Errors
    /// Returns [`DatabaseError::ConfirmMismatch`], [`DatabaseError::NoDatabase`] or [`DatabaseError::AuthEnabled`].
    /// Also returns the errors of [`Self::restore`] about the placement and the limit.
    pub async fn delete(
        &self,
        actor: &Actor,
        target: Target,
        name: &str,
        request: DeleteRequest,
    ) -> Result<OperationStarted> {
        if request.confirm != name {
            return Err(DatabaseError::ConfirmMismatch);
        }
        self.require_link()?;
        let Target { org, project, .. } = target;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let state = self.lock(tx, project).await?;
                let database = tx.database_find(project).await?.ok_or(DatabaseError::NoDatabase)?;
                if self.ports.grants.has_auth(tx, project).await? {
                    return Err(DatabaseError::AuthEnabled);
                }
                self.require_running(tx, project, state).await?;
                let id = self.start(tx, project, database, OperationKind::Delete, None).await?;
                let event = Event::in_org("database.delete", org, project, json!({ "operation": id }));
                Ok(Outcome::Changed(OperationStarted { operation_id: id }, event))
            })
            .await
    }

    /// Returns an operation of the project.
    ///
    /// # Errors
    /// Returns [`DatabaseError::OperationNotFound`].
    pub async fn operation(&self, project: ProjectId, operation: OperationId) -> Result<Operation> {
        let found = self.store.connection().await?.operation_find(project, operation).await?;
        found.ok_or(DatabaseError::OperationNotFound)
    }

    /// Aborts an operation that has not reached its irreversible phase. The database then serves again as before.
    ///
    /// # Errors
    /// Returns [`DatabaseError::OperationNotFound`], [`DatabaseError::NotAbortable`] or
    /// [`DatabaseError::ProjectNotFound`].
    pub async fn abort(&self, actor: &Actor, target: Target, operation: OperationId) -> Result<Operation> {
        let Target { org, project, .. } = target;
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                self.ports.placements.lock(tx, project).await?.ok_or(DatabaseError::OperationNotFound)?;
                tx.operation_find(project, operation).await?.ok_or(DatabaseError::OperationNotFound)?;
                if !self.cancel(tx, project, operation, ABORTED, now).await? {
                    return Err(DatabaseError::NotAbortable);
                }
                let aborted = tx.operation_find(project, operation).await?.ok_or(DatabaseError::OperationNotFound)?;
                let event = Event::in_org("database.abort", org, project, json!({ "operation": operation }));
                Ok(Outcome::Changed(aborted, event))
            })
            .await
    }

    /// Ends an operation before its irreversible phase. Returns false if the operation has reached this phase or has
    /// ended.
    pub(super) async fn cancel(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        operation: OperationId,
        code: &'static str,
        now: Time,
    ) -> store::Result<bool> {
        let canceled = tx.operation_cancel(operation, code, now).await?;
        if canceled {
            self.ports.placements.enter(tx, project, Phase::Done).await?;
            self.publish_observed(tx, project).await?;
        }
        Ok(canceled)
    }

    /// Starts an operation on a running placement. The node ends a pending export of the project when it begins an
    /// operation, so the export fails here.
    async fn start(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        database: DatabaseId,
        kind: OperationKind,
        seq: Option<i64>,
    ) -> Result<OperationId> {
        let clock_rng = self.store.clock_rng();
        let created_at = clock_rng.now();
        let id: OperationId = clock_rng.id_at(created_at);
        let limited = if kind == OperationKind::Delete { LimitedOperation::Change } else { LimitedOperation::Restore };
        self.ensure_below_daily_limit(tx, project, limited, created_at).await?;
        tx.operation_insert(OperationRecord { id, project, database, kind, seq, created_at }).await?;
        let reason = "an operation on the database began";
        tx.export_fail_pending(project, created_at.plus_seconds(1), reason, created_at).await?;
        self.ports.placements.enter(tx, project, Phase::Draining).await?;
        self.publish(tx, project).await?;
        Ok(id)
    }
}
