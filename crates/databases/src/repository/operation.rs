//! Operations. At most one operation of a project runs at a time.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{DatabaseId, OperationId, ProjectId, Time};
use store::{Connection, Result, purge_batch};

use crate::model::{Operation, OperationKind, Phase};
use crate::schema::operations;

/// An operation to insert, in its first phase.
pub struct OperationRecord {
    pub id: OperationId,
    pub project: ProjectId,
    pub database: DatabaseId,
    pub kind: OperationKind,
    /// The number of the generation to restore.
    pub seq: Option<i64>,
    pub created_at: Time,
}

/// A running operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = operations)]
pub struct RunningOperation {
    pub id: OperationId,
    pub kind: OperationKind,
    pub phase: Phase,
    /// The number of the generation to restore.
    pub seq: Option<i64>,
}

/// Operations on a [`store::Connection`].
pub trait OperationRepository {
    /// Inserts an operation. The project has no other running operation.
    async fn operation_insert(&mut self, operation: OperationRecord) -> Result<()>;

    /// Returns an operation of a project.
    async fn operation_find(&mut self, project: ProjectId, operation: OperationId) -> Result<Option<Operation>>;

    /// Returns the running operation of a project.
    async fn operation_running(&mut self, project: ProjectId) -> Result<Option<RunningOperation>>;

    /// Moves a running operation from one phase to another. Returns false if it is not in the phase `from`.
    async fn operation_advance(&mut self, operation: OperationId, from: Phase, to: Phase, at: Time) -> Result<bool>;

    /// Ends a running operation with this terminal code, unless it has reached its irreversible phase. Returns whether
    /// the operation ended.
    async fn operation_cancel(&mut self, operation: OperationId, code: &'static str, at: Time) -> Result<bool>;

    /// Deletes a batch of operations that ended before this time, and returns their number.
    async fn operation_purge(&mut self, ended_before: Time) -> Result<usize>;
}

const PURGE: &str = "DELETE FROM databases.operations WHERE id IN ( \
    SELECT id FROM databases.operations WHERE ended_at < $1 LIMIT $2)";

#[derive(Queryable, Selectable)]
#[diesel(table_name = operations)]
struct OperationRow {
    id: OperationId,
    project_id: ProjectId,
    kind: OperationKind,
    phase: Phase,
    terminal_code: Option<String>,
    created_at: Time,
    updated_at: Time,
}

impl OperationRepository for Connection {
    async fn operation_insert(&mut self, operation: OperationRecord) -> Result<()> {
        let OperationRecord { id, project, database, kind, seq, created_at } = operation;
        let row = (
            operations::id.eq(id),
            operations::project_id.eq(project),
            operations::database_id.eq(database),
            operations::kind.eq(kind),
            operations::phase.eq(Phase::Draining),
            operations::seq.eq(seq),
            operations::created_at.eq(created_at),
            operations::updated_at.eq(created_at),
        );
        diesel::insert_into(operations::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn operation_find(&mut self, project: ProjectId, operation: OperationId) -> Result<Option<Operation>> {
        let query = operations::table.find(operation).filter(operations::project_id.eq(project));
        let row = query.select(OperationRow::as_select()).first(self).await.optional()?;
        Ok(row.map(Operation::from))
    }

    async fn operation_running(&mut self, project: ProjectId) -> Result<Option<RunningOperation>> {
        let running = operations::project_id.eq(project).and(operations::ended_at.is_null());
        Ok(operations::table.filter(running).select(RunningOperation::as_select()).first(self).await.optional()?)
    }

    async fn operation_advance(&mut self, operation: OperationId, from: Phase, to: Phase, at: Time) -> Result<bool> {
        let guard = operations::phase.eq(from).and(operations::ended_at.is_null());
        let ended_at = (to == Phase::Done).then_some(at);
        let change = (operations::phase.eq(to), operations::updated_at.eq(at), operations::ended_at.eq(ended_at));
        Ok(diesel::update(operations::table.find(operation).filter(guard)).set(change).execute(self).await? == 1)
    }

    async fn operation_cancel(&mut self, operation: OperationId, code: &'static str, at: Time) -> Result<bool> {
        let guard = operations::phase.eq_any([Phase::Draining, Phase::Sealing]).and(operations::ended_at.is_null());
        let abortable = operations::kind.ne(OperationKind::Restore);
        let change = (
            operations::phase.eq(Phase::Done),
            operations::terminal_code.eq(code),
            operations::updated_at.eq(at),
            operations::ended_at.eq(at),
        );
        let operation = operations::table.find(operation).filter(guard.and(abortable));
        Ok(diesel::update(operation).set(change).execute(self).await? == 1)
    }

    async fn operation_purge(&mut self, ended_before: Time) -> Result<usize> {
        purge_batch(self, PURGE, ended_before).await
    }
}

impl From<OperationRow> for Operation {
    fn from(row: OperationRow) -> Self {
        let OperationRow { id, project_id, kind, phase, terminal_code, created_at, updated_at } = row;
        Self { id, project_id, kind, phase, terminal_code, created_at, updated_at }
    }
}
