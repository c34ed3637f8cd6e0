//! The repository on Postgres.

use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel::sql_types::{Array, BigInt, Text, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{Digest, NodeId, ProjectId, Time, TokenHash};
use store::{Cached, Connection, Error, Result};

use crate::model::{Node, NodeName, NodeView, Placed, PlacementState, Site, Stored};
use crate::repository::{ConvergenceRepository, Placement};
use crate::schema::{nodes, placements};

#[derive(Queryable, Selectable)]
#[diesel(table_name = nodes)]
struct NodeRow {
    id: NodeId,
    name: NodeName,
    created_at: Time,
}

#[derive(Insertable, AsChangeset)]
#[diesel(table_name = placements, treat_none_as_null = true)]
struct PlacementRow {
    project_id: ProjectId,
    node_id: Option<NodeId>,
    state: PlacementState,
    epoch: i64,
    revision: i64,
    desired: Option<serde_json::Value>,
    created_at: Time,
    updated_at: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = placements)]
struct PlacedRow {
    project_id: ProjectId,
    revision: i64,
    desired: Option<serde_json::Value>,
}

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

    async fn placement_upsert(&mut self, placement: &Placement) -> Result<()> {
        let Placement { project, home, state, desired, at } = placement;
        let desired = desired.as_ref().map(serde_json::to_value).transpose().map_err(Error::inconsistent)?;
        let row = PlacementRow {
            project_id: *project,
            node_id: home.map(|(node, _)| node),
            state: *state,
            epoch: 1,
            revision: home.map_or(0, |(_, revision)| revision),
            desired,
            created_at: *at,
            updated_at: *at,
        };
        let change = (
            placements::node_id.eq(row.node_id),
            placements::state.eq(row.state),
            placements::revision.eq(row.revision),
            placements::desired.eq(row.desired.clone()),
            placements::updated_at.eq(row.updated_at),
        );
        let upsert = diesel::insert_into(placements::table)
            .values(row)
            .on_conflict(placements::project_id)
            .do_update()
            .set(change);
        Cached(upsert).execute(self).await?;
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

    async fn placement_move(&mut self, projects: &[ProjectId], home: NodeId, last_revision: i64) -> Result<()> {
        let update = "UPDATE convergence.placements p SET node_id = $1, revision = $2 - $3 + moved.number, state = $4 \
                      FROM unnest($5) WITH ORDINALITY moved (project_id, number) WHERE p.project_id = moved.project_id";
        let count = i64::try_from(projects.len()).map_err(Error::inconsistent)?;
        diesel::sql_query(update)
            .bind::<Uuid, _>(home)
            .bind::<BigInt, _>(last_revision)
            .bind::<BigInt, _>(count)
            .bind::<Text, _>(PlacementState::Active)
            .bind::<Array<Uuid>, _>(projects)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn placement_wait(&mut self, projects: &[ProjectId]) -> Result<()> {
        let change = (
            placements::node_id.eq(None::<NodeId>),
            placements::revision.eq(0),
            placements::state.eq(PlacementState::Pending),
        );
        let waiting = placements::table.filter(placements::project_id.eq_any(projects));
        diesel::update(waiting).set(change).execute(self).await?;
        Ok(())
    }

    async fn placement_at(&mut self, node: NodeId, projects: &[ProjectId]) -> Result<Vec<ProjectId>> {
        let query = placements::table
            .filter(placements::node_id.eq(node).and(placements::project_id.eq_any(projects)))
            .select(placements::project_id);
        Ok(query.load(self).await?)
    }

    async fn desired_since(&mut self, node: NodeId, since: i64) -> Result<Option<Stored>> {
        let rows = nodes::table
            .left_join(
                placements::table.on(placements::node_id.eq(nodes::id.nullable()).and(placements::revision.gt(since))),
            )
            .filter(nodes::id.eq(node))
            .order(placements::revision)
            .select((nodes::revision, nodes::batch, Option::<PlacedRow>::as_select()))
            .load::<(i64, i64, Option<PlacedRow>)>(self)
            .await?;
        let &[(revision, batch, _), ..] = rows.as_slice() else {
            return Ok(None);
        };
        let sites = rows.into_iter().filter_map(|(_, _, row)| row).map(Placed::try_from).collect::<Result<_>>()?;
        Ok(Some(Stored { revision, batch, sites }))
    }

    async fn bundle_is_placed(&mut self, node: NodeId, bundle: Digest) -> Result<bool> {
        let named = placements::desired.retrieve_as_text("bundle").eq(bundle.to_string());
        let query = placements::table.filter(placements::node_id.eq(node)).filter(named);
        Ok(diesel::select(diesel::dsl::exists(query)).get_result(self).await?)
    }
}

impl From<NodeRow> for Node {
    fn from(row: NodeRow) -> Self {
        let NodeRow { id, name, created_at } = row;
        Self { id, name, created_at }
    }
}

impl TryFrom<PlacedRow> for Placed {
    type Error = Error;

    fn try_from(row: PlacedRow) -> Result<Self> {
        let site = row.desired.map(serde_json::from_value::<Site>).transpose().map_err(Error::inconsistent)?;
        Ok(Self { project: row.project_id, revision: row.revision, site })
    }
}
