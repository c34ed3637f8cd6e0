//! Prepared statements for queries that diesel would prepare again on every execution.
//!
//! diesel caches selects, deletes and single-row inserts, but not updates, upserts and `sql_query`. For those,
//! [`Prepared`] saves a round trip. It relies on a hook that diesel keeps for third-party backends.

use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;

/// A statement with constant text, prepared once per connection.
#[derive(Debug, Clone, Copy)]
pub struct Prepared<Q>(pub Q);

impl<Q: QueryFragment<Pg>> QueryFragment<Pg> for Prepared<Q> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.0.walk_ast(pass)
    }

    fn is_safe_to_cache_prepared(&self, _: &Pg) -> QueryResult<bool> {
        Ok(true)
    }
}

impl<Q: QueryId> QueryId for Prepared<Q> {
    type QueryId = Q::QueryId;
    const HAS_STATIC_QUERY_ID: bool = Q::HAS_STATIC_QUERY_ID;
}

impl<Q: Query> Query for Prepared<Q> {
    type SqlType = Q::SqlType;
}
