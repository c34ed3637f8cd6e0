//! Placements.

use std::collections::BTreeSet;

use diesel::dsl::{exists, not, sql};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{NodeId, ProjectId, Time};
use store::{Connection, Error, Prepared, Result};

use super::NodeRepository as _;

use crate::model::PlacementState;
use crate::schema::{parts, placements};

/// Placements on a [`store::Connection`].
pub trait PlacementRepository {
    /// Locks the project's placement.
    async fn placement_lock(&mut self, project: ProjectId) -> Result<Option<PlacementRecord>>;

    /// Locks the placements of these projects and, if there are several, their nodes, each in the order of their ids.
    async fn placement_lock_all(&mut self, projects: &[ProjectId]) -> Result<()>;

    /// Inserts a placement that is pending, or that has already ended. Returns false if the project has a placement.
    async fn placement_insert(&mut self, project: ProjectId, at: Time, ended_at: Option<Time>) -> Result<bool>;

    /// Marks a locked placement as ended, because its project was deleted.
    async fn placement_end(&mut self, project: ProjectId, at: Time) -> Result<()>;

    /// Deletes the placements of the given projects, with all their parts. Skips projects that have a desired part.
    async fn placement_purge(&mut self, projects: &[ProjectId]) -> Result<()>;

    /// Returns whether any placement is pending. A placement of a deleted project counts only if it has a final part.
    async fn placement_has_pending(&mut self) -> Result<bool>;

    /// Locks the pending placements and returns their projects.
    async fn placement_list_pending(&mut self) -> Result<Vec<ProjectId>>;

    /// Locks up to `limit` placements on the node and returns their projects.
    async fn placement_lock_by_node(&mut self, node: NodeId, limit: i64) -> Result<Vec<ProjectId>>;

    /// Moves locked placements to a home node, and gives each of their parts a revision above `after`. Returns the
    /// number of parts.
    async fn placement_move(&mut self, projects: &[ProjectId], home: NodeId, after: i64) -> Result<i64>;

    /// Makes locked placements pending, without a home node.
    async fn placement_unassign(&mut self, projects: &[ProjectId]) -> Result<()>;

    /// Returns the given projects that are placed on the node.
    async fn placement_filter_by_node(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>>;

    /// Locks the placements on the node of these projects, and returns the projects that are placed on it.
    async fn placement_lock_on_node(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>>;

    /// Moves a placement to a state. Returns false if the state cannot follow the current one.
    async fn placement_enter(&mut self, project: ProjectId, state: PlacementState) -> Result<bool>;
}

/// The placement of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = placements)]
pub struct PlacementRecord {
    /// The home node. `None` while the placement is pending.
    #[diesel(column_name = node_id)]
    pub home: Option<NodeId>,
    pub state: PlacementState,
    /// The time at which the project was deleted.
    pub ended_at: Option<Time>,
}

/// Gives the moved parts the revisions from `$1 + 1`, ordered by project and name.
const MOVE_PARTS: &str = "UPDATE convergence.parts p SET node_id = $2, revision = $1 + moved.number FROM ( \
        SELECT project_id, part, row_number() OVER (ORDER BY project_id, part) AS number \
        FROM convergence.parts WHERE project_id = ANY ($3) \
    ) moved WHERE p.project_id = moved.project_id AND p.part = moved.part";

/// The SQL condition that the placement has a desired part. It is raw SQL, because diesel's nested query takes minutes
/// to compile.
const HAS_DESIRED_PART: &str = "EXISTS (SELECT FROM convergence.parts c \
    WHERE c.project_id = convergence.placements.project_id AND c.desired IS NOT NULL)";

impl PlacementRepository for Connection {
    async fn placement_lock(&mut self, project: ProjectId) -> Result<Option<PlacementRecord>> {
        let query = placements::table.find(project).select(PlacementRecord::as_select()).for_update();
        Ok(query.first(self).await.optional()?)
    }

    async fn placement_lock_all(&mut self, projects: &[ProjectId]) -> Result<()> {
        let query = placements::table.filter(placements::project_id.eq_any(projects)).select(placements::node_id);
        let homes = query.order(placements::project_id).for_update().load::<Option<NodeId>>(self).await?;
        let homes: BTreeSet<NodeId> = homes.into_iter().flatten().collect();
        // Each write locks the node, so one node needs no order.
        if homes.len() > 1 {
            self.node_lock_all(&homes).await?;
        }
        Ok(())
    }

    async fn placement_insert(&mut self, project: ProjectId, at: Time, ended_at: Option<Time>) -> Result<bool> {
        let row = (
            placements::project_id.eq(project),
            placements::state.eq(PlacementState::Pending),
            placements::epoch.eq(1),
            placements::created_at.eq(at),
            placements::ended_at.eq(ended_at),
        );
        let insert =
            diesel::insert_into(placements::table).values(row).on_conflict(placements::project_id).do_nothing();
        Ok(Prepared(insert).execute(self).await? == 1)
    }

    async fn placement_end(&mut self, project: ProjectId, at: Time) -> Result<()> {
        let end = diesel::update(placements::table.find(project)).set(placements::ended_at.eq(at));
        Prepared(end).execute(self).await?;
        Ok(())
    }

    async fn placement_purge(&mut self, projects: &[ProjectId]) -> Result<()> {
        let purged = placements::project_id.eq_any(projects).and(not(sql::<Bool>(HAS_DESIRED_PART)));
        diesel::delete(placements::table.filter(purged)).execute(self).await?;
        Ok(())
    }

    async fn placement_has_pending(&mut self) -> Result<bool> {
        let is_pending = placements::ended_at.is_null().or(sql::<Bool>(HAS_DESIRED_PART));
        let pending = placements::table.filter(placements::node_id.is_null().and(is_pending));
        Ok(diesel::select(exists(pending)).get_result(self).await?)
    }

    async fn placement_list_pending(&mut self) -> Result<Vec<ProjectId>> {
        let is_pending = placements::ended_at.is_null().or(sql::<Bool>(HAS_DESIRED_PART));
        let pending = placements::node_id.is_null().and(is_pending);
        let query = placements::table.filter(pending).select(placements::project_id);
        Ok(query.order(placements::project_id).for_update().load(self).await?)
    }

    async fn placement_lock_by_node(&mut self, node: NodeId, limit: i64) -> Result<Vec<ProjectId>> {
        let query = placements::table.filter(placements::node_id.eq(node)).select(placements::project_id);
        Ok(query.order(placements::project_id).limit(limit).for_update().load(self).await?)
    }

    async fn placement_move(&mut self, projects: &[ProjectId], home: NodeId, after: i64) -> Result<i64> {
        let moved = || placements::table.filter(placements::project_id.eq_any(projects));
        diesel::update(moved()).set(placements::node_id.eq(home)).execute(self).await?;
        // Only pending placements become active. Placements that are suspended or in an operation on the database keep
        // their state when they move.
        let pending = moved().filter(placements::state.eq(PlacementState::Pending));
        diesel::update(pending).set(placements::state.eq(PlacementState::Active)).execute(self).await?;
        let parts = diesel::sql_query(MOVE_PARTS)
            .bind::<BigInt, _>(after)
            .bind::<Uuid, _>(home)
            .bind::<Array<Uuid>, _>(projects)
            .execute(self)
            .await?;
        i64::try_from(parts).map_err(Error::inconsistent)
    }

    async fn placement_unassign(&mut self, projects: &[ProjectId]) -> Result<()> {
        let unassigned = || placements::table.filter(placements::project_id.eq_any(projects));
        diesel::update(unassigned()).set(placements::node_id.eq(None::<NodeId>)).execute(self).await?;
        let active = unassigned().filter(placements::state.eq(PlacementState::Active));
        diesel::update(active).set(placements::state.eq(PlacementState::Pending)).execute(self).await?;
        let unassigned = parts::table.filter(parts::project_id.eq_any(projects));
        let change = (parts::node_id.eq(None::<NodeId>), parts::revision.eq(0));
        diesel::update(unassigned).set(change).execute(self).await?;
        Ok(())
    }

    async fn placement_filter_by_node(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>> {
        let query = placements::table
            .filter(placements::node_id.eq(node).and(placements::project_id.eq_any(projects)))
            .select(placements::project_id);
        Ok(query.load(self).await?)
    }

    async fn placement_lock_on_node(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>> {
        let query = placements::table
            .filter(placements::node_id.eq(node).and(placements::project_id.eq_any(projects)))
            .select(placements::project_id);
        Ok(query.order(placements::project_id).for_update().load(self).await?)
    }

    async fn placement_enter(&mut self, project: ProjectId, state: PlacementState) -> Result<bool> {
        let can_enter = placements::state.eq_any(state.predecessors());
        let raise = i64::from(state == PlacementState::Reactivating);
        let update = diesel::update(placements::table.find(project).filter(can_enter))
            .set((placements::state.eq(state), placements::epoch.eq(placements::epoch + raise)));
        Ok(update.execute(self).await? == 1)
    }
}
