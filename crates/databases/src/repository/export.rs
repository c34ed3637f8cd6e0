//! Exports. A project has at most one pending export.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ExportId, ProjectId, Time};
use store::{Connection, Result, purge_batch};

use crate::model::DatabaseExport;
use crate::schema::exports;

/// The state of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportState {
    Pending,
    Stored(DatabaseExport),
    /// The export failed, for this reason.
    Failed(String),
}

/// Exports on a [`store::Connection`].
pub trait ExportRepository {
    /// Returns whether the project has a pending export.
    async fn export_is_pending(&mut self, project: ProjectId) -> Result<bool>;

    /// Inserts a pending export. The project has no other pending export.
    async fn export_insert(&mut self, project: ProjectId, export: ExportId, at: Time) -> Result<()>;

    /// Returns the state of an export, or `None` if its project was purged.
    async fn export_state(&mut self, export: ExportId) -> Result<Option<ExportState>>;

    /// Ends a pending export of a project. Returns false if it is not pending.
    async fn export_end(
        &mut self,
        project: ProjectId,
        export: ExportId,
        result: std::result::Result<DatabaseExport, String>,
        at: Time,
    ) -> Result<bool>;

    /// Ends the pending exports of a project that started before this time. `reason` is their error.
    async fn export_fail_pending(
        &mut self,
        project: ProjectId,
        started_before: Time,
        reason: &str,
        at: Time,
    ) -> Result<()>;

    /// Ends the pending exports of all projects that started before this time. `reason` is their error.
    async fn export_fail_overdue(&mut self, started_before: Time, reason: &str, at: Time) -> Result<usize>;

    /// Deletes a batch of exports that started before this time, and returns their number.
    async fn export_purge(&mut self, started_before: Time) -> Result<usize>;
}

const PURGE: &str = "DELETE FROM databases.exports WHERE id IN ( \
    SELECT id FROM databases.exports WHERE started_at < $1 LIMIT $2)";

type ExportRow = (Option<String>, Option<i64>, Option<Time>, Option<String>);

impl ExportRepository for Connection {
    async fn export_is_pending(&mut self, project: ProjectId) -> Result<bool> {
        let pending = exports::project_id.eq(project).and(exports::ended_at.is_null());
        Ok(exports::table.filter(pending).count().get_result::<i64>(self).await? > 0)
    }

    async fn export_insert(&mut self, project: ProjectId, export: ExportId, at: Time) -> Result<()> {
        let row = (exports::id.eq(export), exports::project_id.eq(project), exports::started_at.eq(at));
        diesel::insert_into(exports::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn export_state(&mut self, export: ExportId) -> Result<Option<ExportState>> {
        let query = exports::table.find(export);
        let query = query.select((exports::key, exports::size_bytes, exports::created_at, exports::error));
        let row: Option<ExportRow> = query.first(self).await.optional()?;
        Ok(row.map(|(key, size_bytes, created_at, error)| match (key.zip(size_bytes).zip(created_at), error) {
            (Some(((key, size_bytes), created_at)), _) => {
                ExportState::Stored(DatabaseExport { key, size_bytes, created_at })
            }
            (None, Some(reason)) => ExportState::Failed(reason),
            (None, None) => ExportState::Pending,
        }))
    }

    async fn export_end(
        &mut self,
        project: ProjectId,
        export: ExportId,
        result: std::result::Result<DatabaseExport, String>,
        at: Time,
    ) -> Result<bool> {
        let (stored, error) = match result {
            Ok(stored) => (Some(stored), None),
            Err(reason) => (None, Some(reason)),
        };
        let change = (
            exports::ended_at.eq(at),
            exports::key.eq(stored.as_ref().map(|stored| stored.key.clone())),
            exports::size_bytes.eq(stored.as_ref().map(|stored| stored.size_bytes)),
            exports::created_at.eq(stored.map(|stored| stored.created_at)),
            exports::error.eq(error),
        );
        let guard = exports::project_id.eq(project).and(exports::ended_at.is_null());
        Ok(diesel::update(exports::table.find(export).filter(guard)).set(change).execute(self).await? == 1)
    }

    async fn export_fail_pending(
        &mut self,
        project: ProjectId,
        started_before: Time,
        reason: &str,
        at: Time,
    ) -> Result<()> {
        let pending = exports::project_id.eq(project).and(exports::ended_at.is_null());
        let overdue = pending.and(exports::started_at.lt(started_before));
        let change = (exports::ended_at.eq(at), exports::error.eq(reason));
        diesel::update(exports::table.filter(overdue)).set(change).execute(self).await?;
        Ok(())
    }

    async fn export_fail_overdue(&mut self, started_before: Time, reason: &str, at: Time) -> Result<usize> {
        let overdue = exports::ended_at.is_null().and(exports::started_at.lt(started_before));
        let change = (exports::ended_at.eq(at), exports::error.eq(reason));
        Ok(diesel::update(exports::table.filter(overdue)).set(change).execute(self).await?)
    }

    async fn export_purge(&mut self, started_before: Time) -> Result<usize> {
        purge_batch(self, PURGE, started_before).await
    }
}
