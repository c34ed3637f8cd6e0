//! Nodes.

use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel_async::RunQueryDsl;
use kernel::{NodeId, Time, TokenHash};
use store::{Cached, Connection, Result};

use crate::model::{Node, NodeName, NodeView};
use crate::schema::nodes;

/// Nodes on a [`store::Connection`].
pub trait NodeRepository {
    /// Writes a new node; false when its name is taken.
    async fn node_insert(&mut self, node: &Node, token_hash: TokenHash) -> Result<bool>;

    /// Replaces a node's credential; none when there is no node of that name.
    async fn node_set_token(&mut self, name: &str, token_hash: TokenHash) -> Result<Option<Node>>;

    /// The node whose credential this is.
    async fn node_by_token(&mut self, token_hash: TokenHash) -> Result<Option<NodeId>>;

    /// The node of this name.
    async fn node_find(&mut self, name: &str) -> Result<Option<Node>>;

    /// Every node, by name.
    async fn node_list(&mut self) -> Result<Vec<NodeView>>;

    /// The node with the fewest placements.
    async fn node_least_loaded(&mut self) -> Result<Option<NodeId>>;

    /// How many placements each node but this one has.
    async fn node_loads(&mut self, but: NodeId) -> Result<Vec<(NodeId, i64)>>;

    /// Removes a node that has no placements.
    ///
    /// # Errors
    /// A violation of `placements_node_id_fkey` while it has any.
    async fn node_delete(&mut self, node: NodeId) -> Result<()>;

    /// Raises the node's revision by so many and tells it; holds the node's row until the transaction ends. None when it is
    /// gone.
    async fn node_raise_revision(&mut self, node: NodeId, by: i64) -> Result<Option<i64>>;

    /// Notes that the node was here, unless that was noted less than a minute ago.
    async fn node_seen(&mut self, node: NodeId, at: Time) -> Result<()>;

    /// Takes the number of a batch in; false when it was taken in before. Holds the node's row until the transaction
    /// ends.
    async fn node_take_batch(&mut self, node: NodeId, batch: i64) -> Result<bool>;

    /// The number of the node's last batch.
    async fn node_batch(&mut self, node: NodeId) -> Result<Option<i64>>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = nodes)]
struct NodeRow {
    id: NodeId,
    name: NodeName,
    created_at: Time,
}

impl NodeRepository for Connection {
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
}

impl From<NodeRow> for Node {
    fn from(row: NodeRow) -> Self {
        let NodeRow { id, name, created_at } = row;
        Self { id, name, created_at }
    }
}
