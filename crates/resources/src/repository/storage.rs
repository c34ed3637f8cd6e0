//! Object storage.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Plan, ProjectId, Resource, StorageId, Time};
use store::{Connection, Error, Prepared, Result};

use crate::schema::{grants, project_plans, storage};

/// The storage of a project, which was granted at least once.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = storage)]
pub struct StorageRecord {
    pub prefix: StorageId,
    /// From the last report.
    pub used_bytes: i64,
    pub reported_at: Option<Time>,
}

/// A project with its organization.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = project_plans)]
pub struct ProjectPlan {
    pub name: String,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    pub plan: Plan,
}

/// Object storage on a [`store::Connection`].
pub trait StorageRepository {
    /// Creates the storage of a project with this prefix, or returns the existing storage.
    async fn storage_create(&mut self, project: ProjectId, prefix: StorageId) -> Result<StorageRecord>;

    /// Returns the storage of a project, and whether it is granted.
    async fn storage_find(&mut self, project: ProjectId) -> Result<Option<(StorageRecord, bool)>>;

    /// Returns the prefixes and the plans of those of these projects to which storage is granted.
    async fn storage_load(&mut self, projects: &[ProjectId]) -> Result<Vec<(ProjectId, StorageId, Plan)>>;

    /// Stores a report. Returns whether the quota was exceeded before, or `None` for a project without storage.
    async fn storage_report(
        &mut self,
        project: ProjectId,
        used_bytes: i64,
        quota_exceeded: bool,
        at: Time,
    ) -> Result<Option<bool>>;

    /// Returns a project with its organization and plan; `None` for a deleted project.
    async fn project_plan(&mut self, project: ProjectId) -> Result<Option<ProjectPlan>>;
}

/// The lock makes the previous value exact.
const REPORT: &str = "UPDATE resources.storage s SET used_bytes = $2, quota_exceeded = $3, reported_at = $4 \
    FROM (SELECT project_id, quota_exceeded FROM resources.storage WHERE project_id = $1 FOR UPDATE) before \
    WHERE s.project_id = before.project_id RETURNING before.quota_exceeded AS was_exceeded";

#[derive(QueryableByName)]
struct ReportRow {
    #[diesel(sql_type = Bool)]
    was_exceeded: bool,
}

impl StorageRepository for Connection {
    async fn storage_create(&mut self, project: ProjectId, prefix: StorageId) -> Result<StorageRecord> {
        let insert = diesel::insert_into(storage::table)
            .values((storage::project_id.eq(project), storage::prefix.eq(prefix)))
            .on_conflict(storage::project_id)
            .do_nothing();
        Prepared(insert).execute(self).await?;
        let created = storage::table.find(project).select(StorageRecord::as_select()).first(self).await.optional()?;
        created.ok_or_else(|| Error::inconsistent("the created storage is missing"))
    }

    async fn storage_find(&mut self, project: ProjectId) -> Result<Option<(StorageRecord, bool)>> {
        let granted = grants::table.find((storage::project_id, Resource::Storage));
        let query = storage::table.find(project).select((StorageRecord::as_select(), diesel::dsl::exists(granted)));
        Ok(query.first(self).await.optional()?)
    }

    async fn storage_load(&mut self, projects: &[ProjectId]) -> Result<Vec<(ProjectId, StorageId, Plan)>> {
        let query = storage::table
            .inner_join(project_plans::table.on(project_plans::id.eq(storage::project_id)))
            .inner_join(grants::table.on(grants::project_id.eq(storage::project_id)))
            .filter(storage::project_id.eq_any(projects).and(grants::resource.eq(Resource::Storage)))
            .select((storage::project_id, storage::prefix, project_plans::plan));
        Ok(query.load(self).await?)
    }

    async fn storage_report(
        &mut self,
        project: ProjectId,
        used_bytes: i64,
        quota_exceeded: bool,
        at: Time,
    ) -> Result<Option<bool>> {
        let update = diesel::sql_query(REPORT)
            .bind::<Uuid, _>(project)
            .bind::<BigInt, _>(used_bytes)
            .bind::<Bool, _>(quota_exceeded)
            .bind::<Timestamptz, _>(at);
        let row: Option<ReportRow> = Prepared(update).get_result(self).await.optional()?;
        Ok(row.map(|row| row.was_exceeded))
    }

    async fn project_plan(&mut self, project: ProjectId) -> Result<Option<ProjectPlan>> {
        let query = project_plans::table.find(project).select(ProjectPlan::as_select());
        Ok(query.first(self).await.optional()?)
    }
}
