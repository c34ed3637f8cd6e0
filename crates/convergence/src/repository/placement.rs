//! Placements.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{NodeId, ProjectId, Time};
use store::{Cached, Connection, Error, Result};

use crate::model::PlacementState;
use crate::schema::{parts, placements};

/// Placements on a [`store::Connection`].
pub trait PlacementRepository {
    /// Locks the project's placement and gives its home node: none without a placement, `Some(None)` for a pending one.
    async fn placement_home(&mut self, project: ProjectId) -> Result<Option<Option<NodeId>>>;

    /// Inserts a pending placement, unless the project has one.
    async fn placement_insert(&mut self, project: ProjectId, at: Time) -> Result<()>;

    /// Whether any project waits for a node.
    async fn placement_is_waiting(&mut self) -> Result<bool>;

    /// Projects that wait for a node, locked.
    async fn placement_waiting(&mut self) -> Result<Vec<ProjectId>>;

    /// Projects that are at home on the node, locked.
    async fn placement_of_node(&mut self, node: NodeId) -> Result<Vec<ProjectId>>;

    /// Gives locked placements a home, and each of their parts one of the revisions after this one. The number of parts.
    async fn placement_move(&mut self, projects: &[ProjectId], home: NodeId, after: i64) -> Result<i64>;

    /// Takes the home of locked placements: they are pending.
    async fn placement_wait(&mut self, projects: &[ProjectId]) -> Result<()>;

    /// Which of these projects are at home on the node.
    async fn placement_at(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>>;
}

/// The first revision is the one after `$1`; the parts of a project keep the order of their names.
const MOVE_PARTS: &str = "UPDATE convergence.parts p SET node_id = $2, revision = $1 + moved.number FROM ( \
        SELECT project_id, part, row_number() OVER (ORDER BY project_id, part) AS number \
        FROM convergence.parts WHERE project_id = ANY ($3) \
    ) moved WHERE p.project_id = moved.project_id AND p.part = moved.part";

impl PlacementRepository for Connection {
    async fn placement_home(&mut self, project: ProjectId) -> Result<Option<Option<NodeId>>> {
        let query = placements::table.find(project).select(placements::node_id).for_update();
        Ok(query.first(self).await.optional()?)
    }

    async fn placement_insert(&mut self, project: ProjectId, at: Time) -> Result<()> {
        let row = (
            placements::project_id.eq(project),
            placements::state.eq(PlacementState::Pending),
            placements::epoch.eq(1),
            placements::created_at.eq(at),
        );
        let insert =
            diesel::insert_into(placements::table).values(row).on_conflict(placements::project_id).do_nothing();
        Cached(insert).execute(self).await?;
        Ok(())
    }

    async fn placement_is_waiting(&mut self) -> Result<bool> {
        let waiting = placements::table.filter(placements::node_id.is_null());
        Ok(diesel::select(diesel::dsl::exists(waiting)).get_result(self).await?)
    }

    async fn placement_waiting(&mut self) -> Result<Vec<ProjectId>> {
        let query = placements::table.filter(placements::node_id.is_null()).select(placements::project_id);
        Ok(query.order(placements::project_id).for_update().load(self).await?)
    }

    async fn placement_of_node(&mut self, node: NodeId) -> Result<Vec<ProjectId>> {
        let query = placements::table.filter(placements::node_id.eq(node)).select(placements::project_id);
        Ok(query.order(placements::project_id).for_update().load(self).await?)
    }

    async fn placement_move(&mut self, projects: &[ProjectId], home: NodeId, after: i64) -> Result<i64> {
        let moved = placements::table.filter(placements::project_id.eq_any(projects));
        let change = (placements::node_id.eq(home), placements::state.eq(PlacementState::Active));
        diesel::update(moved).set(change).execute(self).await?;
        let parts = diesel::sql_query(MOVE_PARTS)
            .bind::<BigInt, _>(after)
            .bind::<Uuid, _>(home)
            .bind::<Array<Uuid>, _>(projects)
            .execute(self)
            .await?;
        i64::try_from(parts).map_err(Error::inconsistent)
    }

    async fn placement_wait(&mut self, projects: &[ProjectId]) -> Result<()> {
        let waiting = placements::table.filter(placements::project_id.eq_any(projects));
        let change = (placements::node_id.eq(None::<NodeId>), placements::state.eq(PlacementState::Pending));
        diesel::update(waiting).set(change).execute(self).await?;
        let waiting = parts::table.filter(parts::project_id.eq_any(projects));
        let change = (parts::node_id.eq(None::<NodeId>), parts::revision.eq(0));
        diesel::update(waiting).set(change).execute(self).await?;
        Ok(())
    }

    async fn placement_at(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>> {
        let query = placements::table
            .filter(placements::node_id.eq(node).and(placements::project_id.eq_any(projects)))
            .select(placements::project_id);
        Ok(query.load(self).await?)
    }
}
