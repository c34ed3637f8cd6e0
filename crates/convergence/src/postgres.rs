//! The repository on Postgres.

use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel::sql_types::{Array, BigInt, Nullable, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{Digest, NodeId, ProjectId, Time, TokenHash};
use protocol::{Change, DesiredPart as _, Site};
use store::{Cached, Connection, Error, Result};

use crate::model::{Node, NodeName, NodeView, PlacementState};
use crate::repository::{ConvergenceRepository, PartRecord, Stored};
use crate::schema::{nodes, parts, placements};

#[derive(Queryable, Selectable)]
#[diesel(table_name = nodes)]
struct NodeRow {
    id: NodeId,
    name: NodeName,
    created_at: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = parts)]
struct PartRow {
    project_id: ProjectId,
    revision: i64,
    part: String,
    desired: Option<serde_json::Value>,
}

/// The first revision is the one after `$1`; the parts of a project keep the order of their names.
const MOVE_PARTS: &str = "UPDATE convergence.parts p SET node_id = $2, revision = $1 + moved.number FROM ( \
        SELECT project_id, part, row_number() OVER (ORDER BY project_id, part) AS number \
        FROM convergence.parts WHERE project_id = ANY ($3) \
    ) moved WHERE p.project_id = moved.project_id AND p.part = moved.part";

/// Without `$1` the parts have no node, and stay at revision 0.
const REMOVE_PARTS: &str = "UPDATE convergence.parts p SET desired = NULL, updated_at = $2, \
        revision = coalesce($1 + removed.number, 0) FROM ( \
        SELECT project_id, part, row_number() OVER (ORDER BY part) AS number \
        FROM convergence.parts WHERE project_id = $3 AND desired IS NOT NULL \
    ) removed WHERE p.project_id = removed.project_id AND p.part = removed.part";

impl ConvergenceRepository for Connection {
    async fn node_insert(&mut self, node: &Node, token_hash: TokenHash) -> Result<bool> {
        let row = (
            nodes::id.eq(node.id),
            nodes::name.eq(&node.name),
            nodes::token_hash.eq(token_hash),
            nodes::created_at.eq(node.created_at),
        );
        let insert = diesel::insert_into(nodes::table).values(row).on_conflict(nodes::name).do_nothing();
        Ok(insert.execute(self).await? == 1)
    }

    async fn node_set_token(&mut self, name: &str, token_hash: TokenHash) -> Result<Option<Node>> {
        let update = diesel::update(nodes::table.filter(nodes::name.eq(name)))
            .set(nodes::token_hash.eq(token_hash))
            .returning(NodeRow::as_returning());
        Ok(update.get_result::<NodeRow>(self).await.optional()?.map(Node::from))
    }

    async fn node_by_token(&mut self, token_hash: TokenHash) -> Result<Option<NodeId>> {
        let query = nodes::table.filter(nodes::token_hash.eq(token_hash)).select(nodes::id);
        Ok(query.first(self).await.optional()?)
    }

    async fn node_find(&mut self, name: &str) -> Result<Option<Node>> {
        let query = nodes::table.filter(nodes::name.eq(name)).select(NodeRow::as_select());
        Ok(query.first(self).await.optional()?.map(Node::from))
    }

    async fn node_list(&mut self) -> Result<Vec<NodeView>> {
        let query = nodes::table.order(nodes::name).select((NodeRow::as_select(), nodes::seen_at, nodes::placements));
        let rows = query.load::<(NodeRow, Option<Time>, i64)>(self).await?;
        let views =
            rows.into_iter().map(|(node, seen_at, placements)| NodeView { node: node.into(), seen_at, placements });
        Ok(views.collect())
    }

    async fn node_least_loaded(&mut self) -> Result<Option<NodeId>> {
        let query = nodes::table.order((nodes::placements, nodes::id)).select(nodes::id);
        Ok(query.first(self).await.optional()?)
    }

    async fn node_loads(&mut self, but: NodeId) -> Result<Vec<(NodeId, i64)>> {
        let query = nodes::table.filter(nodes::id.ne(but)).order(nodes::id).select((nodes::id, nodes::placements));
        Ok(query.load(self).await?)
    }

    async fn node_delete(&mut self, node: NodeId) -> Result<()> {
        diesel::delete(nodes::table.find(node)).execute(self).await?;
        Ok(())
    }

    async fn node_raise_revision(&mut self, node: NodeId, by: i64) -> Result<Option<i64>> {
        let update = diesel::update(nodes::table.find(node)).set(nodes::revision.eq(nodes::revision + by));
        Ok(Cached(update.returning(nodes::revision).as_query()).get_result(self).await.optional()?)
    }

    async fn node_seen(&mut self, node: NodeId, at: Time) -> Result<()> {
        let stale = nodes::seen_at.is_null().or(nodes::seen_at.le(at.plus_seconds(-60)));
        let update = diesel::update(nodes::table.filter(nodes::id.eq(node)).filter(stale)).set(nodes::seen_at.eq(at));
        Cached(update).execute(self).await?;
        Ok(())
    }

    async fn node_take_batch(&mut self, node: NodeId, batch: i64) -> Result<bool> {
        let update = diesel::update(nodes::table.filter(nodes::id.eq(node).and(nodes::batch.lt(batch))));
        Ok(Cached(update.set(nodes::batch.eq(batch))).execute(self).await? == 1)
    }

    async fn node_batch(&mut self, node: NodeId) -> Result<Option<i64>> {
        Ok(nodes::table.find(node).select(nodes::batch).first(self).await.optional()?)
    }

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

    async fn part_upsert(&mut self, part: PartRecord) -> Result<()> {
        let PartRecord { project, part, home, desired, at } = part;
        let change = (
            parts::node_id.eq(home.map(|(node, _)| node)),
            parts::revision.eq(home.map_or(0, |(_, revision)| revision)),
            parts::desired.eq(desired),
            parts::updated_at.eq(at),
        );
        let upsert = diesel::insert_into(parts::table)
            .values((parts::project_id.eq(project), parts::part.eq(part), change.clone()))
            .on_conflict((parts::project_id, parts::part))
            .do_update()
            .set(change);
        Cached(upsert).execute(self).await?;
        Ok(())
    }

    async fn part_count(&mut self, projects: &[ProjectId]) -> Result<i64> {
        Ok(parts::table.filter(parts::project_id.eq_any(projects)).count().get_result(self).await?)
    }

    async fn part_count_desired(&mut self, project: ProjectId) -> Result<i64> {
        let desired = parts::project_id.eq(project).and(parts::desired.is_not_null());
        Ok(parts::table.filter(desired).count().get_result(self).await?)
    }

    async fn part_remove_all(&mut self, project: ProjectId, after: Option<i64>, at: Time) -> Result<()> {
        let remove = diesel::sql_query(REMOVE_PARTS)
            .bind::<Nullable<BigInt>, _>(after)
            .bind::<Timestamptz, _>(at)
            .bind::<Uuid, _>(project);
        remove.execute(self).await?;
        Ok(())
    }

    async fn desired_since(&mut self, node: NodeId, since: i64) -> Result<Option<Stored>> {
        let rows = nodes::table
            .left_join(parts::table.on(parts::node_id.eq(nodes::id.nullable()).and(parts::revision.gt(since))))
            .filter(nodes::id.eq(node))
            .order(parts::revision)
            .select((nodes::revision, nodes::batch, Option::<PartRow>::as_select()))
            .load::<(i64, i64, Option<PartRow>)>(self)
            .await?;
        let &[(revision, batch, _), ..] = rows.as_slice() else {
            return Ok(None);
        };
        let parts = rows.into_iter().filter_map(|(_, _, row)| row).map(Change::from).collect();
        Ok(Some(Stored { revision, batch, parts }))
    }

    async fn bundle_is_placed(&mut self, node: NodeId, bundle: Digest) -> Result<bool> {
        let named = parts::desired.retrieve_as_text("bundle").eq(bundle.to_string());
        let query = parts::table.filter(parts::node_id.eq(node).and(parts::part.eq(Site::NAME))).filter(named);
        Ok(diesel::select(diesel::dsl::exists(query)).get_result(self).await?)
    }
}

impl From<NodeRow> for Node {
    fn from(row: NodeRow) -> Self {
        let NodeRow { id, name, created_at } = row;
        Self { id, name, created_at }
    }
}

impl From<PartRow> for Change {
    fn from(row: PartRow) -> Self {
        let PartRow { project_id, revision, part, desired } = row;
        Self { project: project_id.to_string(), revision, part, desired }
    }
}
