//! Nodes.

use std::collections::BTreeSet;

use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel_async::RunQueryDsl;
use kernel::{NodeId, Time, TokenHash};
use protocol::NodeInfo;
use store::{Connection, Prepared, Result};

use crate::model::{Node, NodeKind, NodeName, NodeView};
use crate::schema::nodes;

/// The accuracy of the time at which a node was last seen: 1 minute.
pub const SEEN_INTERVAL_SECONDS: i64 = 60;

/// The time without a request after which a node counts as silent. A node requests its desired state at least every 30
/// seconds, of which up to [`SEEN_INTERVAL_SECONDS`] are not recorded.
const MAX_SILENCE_SECONDS: i64 = 120;

/// Nodes on a [`store::Connection`].
pub trait NodeRepository {
    /// Inserts a node. Returns false if its name is taken.
    ///
    /// # Errors
    /// Returns a violation of `nodes_git_key` if another git node exists.
    async fn node_insert(&mut self, node: &Node, token_hash: TokenHash) -> Result<bool>;

    /// Replaces a node's credential. Returns `None` if the node does not exist.
    async fn node_set_token(&mut self, name: &str, token_hash: TokenHash) -> Result<Option<Node>>;

    /// Returns the node of this kind with this credential, and the time at which it was last seen.
    async fn node_by_token(&mut self, token_hash: TokenHash, kind: NodeKind) -> Result<Option<(NodeId, Option<Time>)>>;

    /// Returns the node with this name.
    async fn node_find(&mut self, name: &str) -> Result<Option<Node>>;

    /// Lists the nodes by name.
    async fn node_list(&mut self) -> Result<Vec<NodeView>>;

    /// Locks the rows of these nodes, in the order of their ids.
    async fn node_lock_all(&mut self, nodes: &BTreeSet<NodeId>) -> Result<()>;

    /// Returns the node for projects with the fewest placements among the nodes that are not silent, or among all if all
    /// are silent. If `with_database` is set, considers only nodes with a Postgres.
    async fn node_least_loaded(&mut self, with_database: bool, now: Time) -> Result<Option<NodeId>>;

    /// Returns the load of each node for projects, without the node `excluded`.
    async fn node_loads(&mut self, excluded: NodeId, now: Time) -> Result<Vec<NodeLoad>>;

    /// Returns whether the node announced a Postgres.
    async fn node_has_database(&mut self, node: NodeId) -> Result<bool>;

    /// Stores the announcement of a node. Returns false if the node does not exist.
    async fn node_announce(&mut self, node: NodeId, info: NodeInfo) -> Result<bool>;

    /// Deletes a node without placements.
    ///
    /// # Errors
    /// Returns a violation of `placements_node_id_fkey` if the node has placements.
    async fn node_delete(&mut self, node: NodeId) -> Result<()>;

    /// Increases the node's revision and returns it, or `None` if the node does not exist. Locks the node's row until
    /// the transaction ends.
    async fn node_raise_revision(&mut self, node: NodeId, by: i64) -> Result<Option<i64>>;

    /// Records the time of a request of the node, unless the recorded one is less than [`SEEN_INTERVAL_SECONDS`] old.
    async fn node_record_seen(&mut self, node: NodeId, at: Time) -> Result<()>;

    /// Records the number of a batch. Returns false if this number or a greater one was recorded before. Locks the
    /// node's row until the transaction ends.
    async fn node_accept_batch(&mut self, node: NodeId, batch: i64) -> Result<bool>;

    /// Returns the number of the node's last accepted batch.
    async fn node_last_batch(&mut self, node: NodeId) -> Result<Option<i64>>;
}

/// The load of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLoad {
    pub node: NodeId,
    /// Whether the node sent no request in the last two minutes. It may be down, or not started yet.
    pub is_silent: bool,
    /// The number of the node's placements.
    pub placements: i64,
    /// Whether the node announced a Postgres.
    pub has_database: bool,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = nodes)]
struct NodeRow {
    id: NodeId,
    name: NodeName,
    kind: NodeKind,
    created_at: Time,
}

impl NodeRepository for Connection {
    async fn node_insert(&mut self, node: &Node, token_hash: TokenHash) -> Result<bool> {
        let row = (
            nodes::id.eq(node.id),
            nodes::name.eq(&node.name),
            nodes::kind.eq(node.kind),
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

    async fn node_by_token(&mut self, token_hash: TokenHash, kind: NodeKind) -> Result<Option<(NodeId, Option<Time>)>> {
        let query = nodes::table.filter(nodes::token_hash.eq(token_hash).and(nodes::kind.eq(kind)));
        Ok(query.select((nodes::id, nodes::last_seen_at)).first(self).await.optional()?)
    }

    async fn node_find(&mut self, name: &str) -> Result<Option<Node>> {
        let query = nodes::table.filter(nodes::name.eq(name)).select(NodeRow::as_select());
        Ok(query.first(self).await.optional()?.map(Node::from))
    }

    async fn node_list(&mut self) -> Result<Vec<NodeView>> {
        let query =
            nodes::table.order(nodes::name).select((NodeRow::as_select(), nodes::last_seen_at, nodes::placements));
        let rows = query.load::<(NodeRow, Option<Time>, i64)>(self).await?;
        let views = rows.into_iter().map(|(node, last_seen_at, placements)| NodeView {
            node: node.into(),
            last_seen_at,
            placements,
        });
        Ok(views.collect())
    }

    async fn node_lock_all(&mut self, nodes: &BTreeSet<NodeId>) -> Result<()> {
        let query = nodes::table.filter(nodes::id.eq_any(nodes)).select(nodes::id);
        query.order(nodes::id).for_no_key_update().load::<NodeId>(self).await?;
        Ok(())
    }

    async fn node_least_loaded(&mut self, with_database: bool, now: Time) -> Result<Option<NodeId>> {
        let is_silent =
            nodes::last_seen_at.is_null().or(nodes::last_seen_at.lt(now.plus_seconds(-MAX_SILENCE_SECONDS)));
        let query = nodes::table.filter(nodes::kind.eq(NodeKind::App));
        let query = query.order((is_silent, nodes::placements, nodes::id)).select(nodes::id).into_boxed();
        let query = if with_database { query.filter(nodes::database_host.is_not_null()) } else { query };
        Ok(query.first(self).await.optional()?)
    }

    async fn node_loads(&mut self, excluded: NodeId, now: Time) -> Result<Vec<NodeLoad>> {
        let others = nodes::id.ne(excluded).and(nodes::kind.eq(NodeKind::App));
        let query = nodes::table.filter(others).order(nodes::id);
        let columns = (nodes::id, nodes::last_seen_at, nodes::placements, nodes::database_host.is_not_null());
        let rows = query.select(columns).load::<(NodeId, Option<Time>, i64, bool)>(self).await?;
        let load = |(node, last_seen_at, placements, has_database): (_, Option<Time>, _, _)| {
            let is_silent = last_seen_at.is_none_or(|at| at < now.plus_seconds(-MAX_SILENCE_SECONDS));
            NodeLoad { node, is_silent, placements, has_database }
        };
        Ok(rows.into_iter().map(load).collect())
    }

    async fn node_has_database(&mut self, node: NodeId) -> Result<bool> {
        let query = nodes::table.find(node).select(nodes::database_host.is_not_null());
        Ok(query.first(self).await.optional()?.unwrap_or(false))
    }

    async fn node_announce(&mut self, node: NodeId, info: NodeInfo) -> Result<bool> {
        let server = info.database;
        let change = (
            nodes::database_host.eq(server.as_ref().map(|server| server.host.clone())),
            nodes::database_port.eq(server.as_ref().map(|server| i32::from(server.port))),
            nodes::database_sslmode.eq(server.as_ref().map(|server| server.sslmode.as_str())),
            nodes::backup_interval_seconds.eq(server.as_ref().map(|server| i64::from(server.backup_interval_seconds))),
        );
        Ok(diesel::update(nodes::table.find(node)).set(change).execute(self).await? == 1)
    }

    async fn node_delete(&mut self, node: NodeId) -> Result<()> {
        diesel::delete(nodes::table.find(node)).execute(self).await?;
        Ok(())
    }

    async fn node_raise_revision(&mut self, node: NodeId, by: i64) -> Result<Option<i64>> {
        let update = diesel::update(nodes::table.find(node)).set(nodes::revision.eq(nodes::revision + by));
        Ok(Prepared(update.returning(nodes::revision).as_query()).get_result(self).await.optional()?)
    }

    async fn node_record_seen(&mut self, node: NodeId, at: Time) -> Result<()> {
        let stale = nodes::last_seen_at.is_null().or(nodes::last_seen_at.le(at.plus_seconds(-SEEN_INTERVAL_SECONDS)));
        let update =
            diesel::update(nodes::table.filter(nodes::id.eq(node)).filter(stale)).set(nodes::last_seen_at.eq(at));
        Prepared(update).execute(self).await?;
        Ok(())
    }

    async fn node_accept_batch(&mut self, node: NodeId, batch: i64) -> Result<bool> {
        let update = diesel::update(nodes::table.filter(nodes::id.eq(node).and(nodes::batch.lt(batch))));
        Ok(Prepared(update.set(nodes::batch.eq(batch))).execute(self).await? == 1)
    }

    async fn node_last_batch(&mut self, node: NodeId) -> Result<Option<i64>> {
        Ok(nodes::table.find(node).select(nodes::batch).first(self).await.optional()?)
    }
}

impl From<NodeRow> for Node {
    fn from(row: NodeRow) -> Self {
        let NodeRow { id, name, kind, created_at } = row;
        Self { id, name, kind, created_at }
    }
}
