//! Tokens.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{DatabaseId, DatabaseTokenId, Paging, ProjectId, Time, UserId};
use store::{Connection, Prepared, Result, newest_first, purge_batch};

use crate::model::{DatabaseToken, TokenName};
use crate::schema::{databases, tokens};

/// A token to insert.
pub struct TokenRecord {
    pub id: DatabaseTokenId,
    pub database: DatabaseId,
    pub name: Option<TokenName>,
    pub verifier: String,
    pub created_at: Time,
    pub created_by: UserId,
    pub expires_at: Option<Time>,
}

/// Whether a token is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    Valid,
    /// The token is revoked, but its node has not confirmed yet that it refuses the login.
    Revoked,
}

/// Tokens on a [`store::Connection`].
pub trait TokenRepository {
    /// Lists the valid tokens of a database, newest first.
    async fn token_list(
        &mut self,
        database: DatabaseId,
        now: Time,
        paging: &Paging<DatabaseTokenId>,
    ) -> Result<Vec<DatabaseToken>>;

    /// Counts the valid tokens of a database.
    async fn token_count(&mut self, database: DatabaseId, now: Time) -> Result<i64>;

    /// Inserts a token.
    async fn token_insert(&mut self, token: TokenRecord) -> Result<()>;

    /// Returns the state of a project's token, unless it has expired.
    async fn token_state(
        &mut self,
        project: ProjectId,
        token: DatabaseTokenId,
        now: Time,
    ) -> Result<Option<TokenState>>;

    /// Revokes a valid token. `revision` is the first revision of the part that does not contain the token.
    async fn token_revoke(&mut self, token: DatabaseTokenId, revision: i64) -> Result<()>;

    /// Returns whether the row of a token exists.
    async fn token_exists(&mut self, token: DatabaseTokenId) -> Result<bool>;

    /// Deletes the tokens of a database that were revoked in this revision of the part, or in an earlier one.
    async fn token_delete_revoked(&mut self, database: DatabaseId, revision: i64) -> Result<()>;

    /// Deletes a batch of expired tokens, and returns their number.
    async fn token_purge(&mut self, now: Time) -> Result<usize>;
}

const PURGE: &str = "DELETE FROM databases.tokens WHERE id IN ( \
    SELECT id FROM databases.tokens WHERE expires_at <= $1 LIMIT $2)";

type TokenRow = (DatabaseTokenId, Option<String>, Time, Option<Time>);

impl TokenRepository for Connection {
    async fn token_list(
        &mut self,
        database: DatabaseId,
        now: Time,
        paging: &Paging<DatabaseTokenId>,
    ) -> Result<Vec<DatabaseToken>> {
        let valid = tokens::revoked_revision.is_null().and(tokens::expires_at.is_null().or(tokens::expires_at.gt(now)));
        let select = tokens::table.filter(valid);
        let select = select.select((tokens::id, tokens::name, tokens::created_at, tokens::expires_at));
        let rows: Vec<TokenRow> =
            newest_first!(select, tokens::database_id = database, tokens::id, paging).load(self).await?;
        let token =
            |(user, name, created_at, expires_at)| DatabaseToken { user, password: None, name, created_at, expires_at };
        Ok(rows.into_iter().map(token).collect())
    }

    async fn token_count(&mut self, database: DatabaseId, now: Time) -> Result<i64> {
        let valid = tokens::revoked_revision.is_null().and(tokens::expires_at.is_null().or(tokens::expires_at.gt(now)));
        Ok(tokens::table.filter(tokens::database_id.eq(database).and(valid)).count().get_result(self).await?)
    }

    async fn token_insert(&mut self, token: TokenRecord) -> Result<()> {
        let TokenRecord { id, database, name, verifier, created_at, created_by, expires_at } = token;
        let row = (
            tokens::id.eq(id),
            tokens::database_id.eq(database),
            tokens::name.eq(name.map(|name| name.to_string())),
            tokens::verifier.eq(verifier),
            tokens::created_at.eq(created_at),
            tokens::created_by.eq(created_by),
            tokens::expires_at.eq(expires_at),
        );
        diesel::insert_into(tokens::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn token_state(
        &mut self,
        project: ProjectId,
        token: DatabaseTokenId,
        now: Time,
    ) -> Result<Option<TokenState>> {
        let own = databases::table.filter(databases::project_id.eq(project)).select(databases::id);
        let query = tokens::table
            .find(token)
            .filter(tokens::database_id.eq_any(own))
            .filter(tokens::expires_at.is_null().or(tokens::expires_at.gt(now)))
            .select(tokens::revoked_revision.is_not_null());
        let revoked: Option<bool> = query.first(self).await.optional()?;
        Ok(revoked.map(|revoked| if revoked { TokenState::Revoked } else { TokenState::Valid }))
    }

    async fn token_revoke(&mut self, token: DatabaseTokenId, revision: i64) -> Result<()> {
        let valid = tokens::table.find(token).filter(tokens::revoked_revision.is_null());
        diesel::update(valid).set(tokens::revoked_revision.eq(revision)).execute(self).await?;
        Ok(())
    }

    async fn token_exists(&mut self, token: DatabaseTokenId) -> Result<bool> {
        let found = diesel::select(diesel::dsl::exists(tokens::table.find(token)));
        Ok(Prepared(found).get_result(self).await?)
    }

    async fn token_delete_revoked(&mut self, database: DatabaseId, revision: i64) -> Result<()> {
        let confirmed = tokens::database_id.eq(database).and(tokens::revoked_revision.le(revision));
        Prepared(diesel::delete(tokens::table.filter(confirmed))).execute(self).await?;
        Ok(())
    }

    async fn token_purge(&mut self, now: Time) -> Result<usize> {
        purge_batch(self, PURGE, now).await
    }
}
