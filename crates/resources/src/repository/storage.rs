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
    /// The usage in the last report.
    pub used_bytes: i64,
    pub reported_at: Option<Time>,
}

/// The storage of a project, and whether it is granted now.
#[derive(Debug, Clone, PartialEq, Eq, Queryable)]
pub struct FoundStorage {
    pub record: StorageRecord,
    pub is_granted: bool,
}

/// The storage that is granted to a project, and the plan of its organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Queryable)]
pub struct GrantedStorage {
    pub project: ProjectId,
    pub prefix: StorageId,
    pub plan: Plan,
}

/// The storage of a purged project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Queryable)]
pub struct PurgedStorage {
    pub project: ProjectId,
    pub prefix: StorageId,
}

/// A project with its organization.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = project_plans)]
pub struct ProjectPlan {
    pub name: String,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    #[diesel(column_name = slug)]
    pub org_slug: String,
    pub plan: Plan,
}

/// Object storage on a [`store::Connection`].
pub trait StorageRepository {
    /// Creates the storage of a project with this prefix, or returns the existing storage.
    async fn storage_create(&mut self, project: ProjectId, prefix: StorageId) -> Result<StorageRecord>;

    /// Returns the storage of a project.
    async fn storage_find(&mut self, project: ProjectId) -> Result<Option<FoundStorage>>;

    /// Returns the storage of each of these projects to which storage is granted.
    async fn storage_load(&mut self, projects: &[ProjectId]) -> Result<Vec<GrantedStorage>>;

    /// Stores a report. Returns whether the previous report exceeded the quota, or `None` for a project without
    /// storage.
    async fn storage_report(
        &mut self,
        project: ProjectId,
        used_bytes: i64,
        quota_exceeded: bool,
        at: Time,
    ) -> Result<Option<bool>>;

    /// Marks the storage of these projects as the storage of purged projects, and returns it.
    async fn storage_mark_purged(&mut self, projects: &[ProjectId], at: Time) -> Result<Vec<PurgedStorage>>;

    /// Deletes the storage of a purged project. Returns false if the project was not purged, or has no storage with
    /// this prefix.
    async fn storage_delete_purged(&mut self, project: ProjectId, prefix: StorageId) -> Result<bool>;

    /// Returns a project with its organization and plan, or `None` for a deleted project.
    async fn project_plan(&mut self, project: ProjectId) -> Result<Option<ProjectPlan>>;
}

/// Locks the row first, so that the previous value that the statement returns is exact.
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

    async fn storage_find(&mut self, project: ProjectId) -> Result<Option<FoundStorage>> {
        let granted = grants::table.find((storage::project_id, Resource::Storage));
        let query = storage::table.find(project).select((StorageRecord::as_select(), diesel::dsl::exists(granted)));
        Ok(query.first(self).await.optional()?)
    }

    async fn storage_load(&mut self, projects: &[ProjectId]) -> Result<Vec<GrantedStorage>> {
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

    async fn storage_mark_purged(&mut self, projects: &[ProjectId], at: Time) -> Result<Vec<PurgedStorage>> {
        let update = diesel::update(storage::table.filter(storage::project_id.eq_any(projects)))
            .set(storage::purged_at.eq(at))
            .returning((storage::project_id, storage::prefix));
        Ok(update.get_results(self).await?)
    }

    async fn storage_delete_purged(&mut self, project: ProjectId, prefix: StorageId) -> Result<bool> {
        let purged = storage::prefix.eq(prefix).and(storage::purged_at.is_not_null());
        let deleted = diesel::delete(storage::table.filter(storage::project_id.eq(project).and(purged)));
        Ok(deleted.execute(self).await? == 1)
    }

    async fn project_plan(&mut self, project: ProjectId) -> Result<Option<ProjectPlan>> {
        let query = project_plans::table.find(project).select(ProjectPlan::as_select());
        Ok(query.first(self).await.optional()?)
    }
}
