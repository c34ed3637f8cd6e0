//! Projects, and their counters, which outlive the database: the revision of the part, and the number of the last
//! generation.

use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel_async::RunQueryDsl;
use kernel::{NodeId, OrgId, Plan, ProjectId, Time};
use store::{Connection, Prepared, Result};

use crate::schema::{homes, project_plans, sequences};

/// A project with its organization.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = project_plans)]
pub struct ProjectPlan {
    pub name: String,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    pub plan: Plan,
    /// See [`Plan::for_retention`].
    pub pro_retention_until: Option<Time>,
}

/// A suspended project.
#[derive(Debug, Clone, PartialEq, Eq, Queryable)]
pub struct SuspendedProject {
    pub id: ProjectId,
    /// The slug of the organization.
    pub org: String,
    pub name: String,
    pub home: Option<NodeId>,
}

/// Projects on a [`store::Connection`].
pub trait ProjectRepository {
    /// Returns a project with its organization and plan, or `None` for a deleted project.
    async fn project_plan(&mut self, project: ProjectId) -> Result<Option<ProjectPlan>>;

    /// Finds a project by the slug of its organization and its name, for operators.
    async fn project_by_name(&mut self, org: &str, name: &str) -> Result<Option<ProjectId>>;

    /// Lists the suspended projects by their organizations and names, for operators.
    async fn project_list_suspended(&mut self, limit: i64) -> Result<Vec<SuspendedProject>>;

    /// Creates the counters of a project that has none yet.
    async fn sequence_create(&mut self, project: ProjectId) -> Result<()>;

    /// Returns whether a generation of the project was ever reported, even if it is no longer listed.
    async fn sequence_has_generation(&mut self, project: ProjectId) -> Result<bool>;

    /// Increases the revision of the project's part and returns it.
    async fn revision_raise(&mut self, project: ProjectId) -> Result<i64>;

    /// Locks the counters of the project, and returns the number of its last generation and the time of the newest purged
    /// one. Returns `None` for a project that never had a database.
    async fn seq_lock(&mut self, project: ProjectId) -> Result<Option<(i64, Option<Time>)>>;

    /// Sets the number of the last generation. The caller holds the lock of the project's counters.
    async fn seq_set(&mut self, project: ProjectId, seq: i64) -> Result<()>;
}

impl ProjectRepository for Connection {
    async fn project_plan(&mut self, project: ProjectId) -> Result<Option<ProjectPlan>> {
        let query = project_plans::table.find(project).select(ProjectPlan::as_select());
        Ok(query.first(self).await.optional()?)
    }

    async fn project_by_name(&mut self, org: &str, name: &str) -> Result<Option<ProjectId>> {
        let named = project_plans::org_slug.eq(org).and(project_plans::name.eq(name));
        Ok(project_plans::table.filter(named).select(project_plans::id).first(self).await.optional()?)
    }

    async fn project_list_suspended(&mut self, limit: i64) -> Result<Vec<SuspendedProject>> {
        let org = project_plans::org_slug.assume_not_null();
        let query = project_plans::table
            .inner_join(homes::table.on(homes::project_id.eq(project_plans::id)))
            .filter(homes::state.eq("suspended"))
            .order((project_plans::org_slug, project_plans::name))
            .limit(limit)
            .select((project_plans::id, org, project_plans::name, homes::node_id));
        Ok(query.load(self).await?)
    }

    async fn sequence_create(&mut self, project: ProjectId) -> Result<()> {
        let row = (sequences::project_id.eq(project), sequences::revision.eq(0));
        let insert = diesel::insert_into(sequences::table).values(row).on_conflict(sequences::project_id).do_nothing();
        Prepared(insert).execute(self).await?;
        Ok(())
    }

    async fn sequence_has_generation(&mut self, project: ProjectId) -> Result<bool> {
        let numbered = sequences::table.find(project).filter(sequences::last_seq.gt(0));
        Ok(diesel::select(diesel::dsl::exists(numbered)).get_result(self).await?)
    }

    async fn revision_raise(&mut self, project: ProjectId) -> Result<i64> {
        let raise = diesel::update(sequences::table.find(project)).set(sequences::revision.eq(sequences::revision + 1));
        Ok(Prepared(raise.returning(sequences::revision).as_query()).get_result(self).await?)
    }

    async fn seq_lock(&mut self, project: ProjectId) -> Result<Option<(i64, Option<Time>)>> {
        let query = sequences::table.find(project).select((sequences::last_seq, sequences::purged_until)).for_update();
        Ok(query.first(self).await.optional()?)
    }

    async fn seq_set(&mut self, project: ProjectId, seq: i64) -> Result<()> {
        let update = diesel::update(sequences::table.find(project)).set(sequences::last_seq.eq(seq));
        Prepared(update).execute(self).await?;
        Ok(())
    }
}
