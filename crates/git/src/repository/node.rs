//! The git node.

use diesel::prelude::*;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{NodeId, Time};
use store::{Connection, Prepared, Result};

use crate::schema::nodes;

/// The announcement of a git node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    pub id: NodeId,
    /// The base URL of its internal listener.
    pub url: String,
    /// The secret with which the control plane authenticates at that listener.
    pub secret: Sealed,
    pub announced_at: Time,
}

/// Git nodes on a [`store::Connection`].
pub trait GitNodeRepository {
    /// Stores the announcement of a node.
    async fn git_node_upsert(&mut self, node: NodeRecord) -> Result<()>;

    /// Returns the node that announced itself last.
    async fn git_node_last(&mut self) -> Result<Option<NodeRecord>>;
}

impl GitNodeRepository for Connection {
    async fn git_node_upsert(&mut self, node: NodeRecord) -> Result<()> {
        let NodeRecord { id, url, secret: Sealed { key_id, bytes }, announced_at } = node;
        let upsert = diesel::insert_into(nodes::table)
            .values((
                nodes::node_id.eq(id),
                nodes::url.eq(url),
                nodes::key_id.eq(key_id),
                nodes::sealed.eq(bytes),
                nodes::announced_at.eq(announced_at),
            ))
            .on_conflict(nodes::node_id)
            .do_update()
            .set((
                nodes::url.eq(excluded(nodes::url)),
                nodes::key_id.eq(excluded(nodes::key_id)),
                nodes::sealed.eq(excluded(nodes::sealed)),
                nodes::announced_at.eq(excluded(nodes::announced_at)),
            ));
        Prepared(upsert).execute(self).await?;
        Ok(())
    }

    async fn git_node_last(&mut self) -> Result<Option<NodeRecord>> {
        let query = nodes::table.order(nodes::announced_at.desc());
        let columns = (nodes::node_id, nodes::url, nodes::key_id, nodes::sealed, nodes::announced_at);
        let row: Option<(NodeId, String, String, Vec<u8>, Time)> =
            query.select(columns).first(self).await.optional()?;
        Ok(row.map(|(id, url, key_id, bytes, announced_at)| NodeRecord {
            id,
            url,
            secret: Sealed { key_id, bytes },
            announced_at,
        }))
    }
}
