//! Statements of fixed shape that diesel would prepare anew each time.
//!
//! diesel caches selects, deletes and single-row inserts, but neither updates, upserts nor `sql_query`. Around those,
//! [`Cached`] saves a round trip. It relies on a hook that diesel keeps for backends outside its own tree.

use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;

/// A statement whose text never varies, prepared once per connection.
#[derive(Debug, Clone, Copy)]
pub struct Cached<Q>(pub Q);

impl<Q: QueryFragment<Pg>> QueryFragment<Pg> for Cached<Q> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.0.walk_ast(pass)
    }

    fn is_safe_to_cache_prepared(&self, _: &Pg) -> QueryResult<bool> {
        Ok(true)
    }
}

impl<Q: QueryId> QueryId for Cached<Q> {
    type QueryId = Q::QueryId;
    const HAS_STATIC_QUERY_ID: bool = Q::HAS_STATIC_QUERY_ID;
}

impl<Q: Query> Query for Cached<Q> {
    type SqlType = Q::SqlType;
}
