//! Refresh tokens.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{ClientId, GrantId, Scope, Time, TokenHash, UserId};
use store::{BATCH_SIZE, Connection, Prepared, Result};

use crate::schema::refresh_tokens;

/// A refresh to execute.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    pub token: TokenHash,
    pub client: ClientId,
    pub successor: TokenHash,
    pub now: Time,
    /// The time at which the grant expires without a further refresh.
    pub expires_at: Time,
}

/// The grant of a refresh token.
#[derive(Debug, Clone, QueryableByName)]
pub struct RefreshedGrant {
    #[diesel(sql_type = Uuid)]
    pub id: GrantId,
    #[diesel(sql_type = Uuid)]
    pub user_id: UserId,
    #[diesel(sql_type = Array<Text>)]
    pub scopes: Vec<Scope>,
}

/// A refresh token of a live grant.
#[derive(Debug, Clone, QueryableByName)]
pub struct PresentedToken {
    #[diesel(sql_type = Uuid)]
    pub grant_id: GrantId,
    #[diesel(sql_type = Uuid)]
    pub client_id: ClientId,
    #[diesel(sql_type = Uuid)]
    pub user_id: UserId,
    #[diesel(sql_type = Array<Text>)]
    pub scopes: Vec<Scope>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub rotated_at: Option<Time>,
    /// Whether the token was rotated and its successor was not used yet.
    #[diesel(sql_type = Bool)]
    pub is_latest: bool,
    #[diesel(sql_type = Nullable<Binary>)]
    successor: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Text>)]
    key_id: Option<String>,
}

impl PresentedToken {
    /// Returns the sealed successor, if it is stored.
    #[must_use]
    pub fn successor(&self) -> Option<Sealed> {
        let (bytes, key_id) = self.successor.clone().zip(self.key_id.clone())?;
        Some(Sealed { key_id, bytes })
    }
}

/// Refresh tokens on a [`store::Connection`].
pub trait RefreshTokenRepository {
    /// Inserts the first refresh token of a grant.
    async fn refresh_token_insert(&mut self, grant: GrantId, token: TokenHash, now: Time) -> Result<()>;

    /// Marks a refresh token of the client as used, and inserts its successor. Returns `None` and changes nothing if
    /// the token is unknown, used or expired, or belongs to another client.
    async fn refresh_token_rotate(&mut self, rotation: &Rotation) -> Result<Option<RefreshedGrant>>;

    /// Returns a refresh token, even if it was used. Its grant must be live.
    async fn refresh_token_find(&mut self, token: TokenHash, now: Time) -> Result<Option<PresentedToken>>;

    /// Deletes a batch of the refresh tokens of ended grants, and returns their number.
    async fn refresh_token_purge(&mut self) -> Result<usize>;

    /// Forgets a batch of ended grants that have no refresh tokens left, and returns their number.
    async fn ended_grant_purge(&mut self) -> Result<usize>;
}

/// Locks the grant before its token, in the same order as the end of a grant. A concurrent statement that waits for the
/// lock reads the token's row again before it changes the row.
const ROTATE: &str = "\
    WITH g AS MATERIALIZED ( \
        SELECT g.id, g.user_id, g.scopes \
        FROM oauth.refresh_tokens r JOIN oauth.grants g ON g.id = r.grant_id \
        WHERE r.token_hash = $1 AND g.client_id = $2 AND g.expires_at > $3 FOR UPDATE OF g \
    ), used AS ( \
        UPDATE oauth.refresh_tokens r SET rotated_at = $3, successor_hash = $4 FROM g \
        WHERE r.token_hash = $1 AND r.grant_id = g.id AND r.rotated_at IS NULL RETURNING r.grant_id \
    ), successor AS ( \
        INSERT INTO oauth.refresh_tokens (token_hash, grant_id, created_at) SELECT $4, used.grant_id, $3 FROM used \
    ), extended AS ( \
        UPDATE oauth.grants g SET last_used_at = $3, expires_at = $5 FROM used WHERE g.id = used.grant_id \
    ) SELECT g.id, g.user_id, g.scopes FROM g JOIN used ON used.grant_id = g.id";

const FIND: &str = "\
    SELECT r.grant_id, g.client_id, g.user_id, g.scopes, r.rotated_at, g.successor, g.key_id, \
           EXISTS (SELECT FROM oauth.refresh_tokens n \
                   WHERE n.token_hash = r.successor_hash AND n.rotated_at IS NULL) AS is_latest \
    FROM oauth.refresh_tokens r JOIN oauth.grants g ON g.id = r.grant_id \
    WHERE r.token_hash = $1 AND g.expires_at > $2";

const PURGE: &str = "DELETE FROM oauth.refresh_tokens WHERE token_hash IN ( \
    SELECT r.token_hash FROM oauth.ended_grants e JOIN oauth.refresh_tokens r ON r.grant_id = e.id \
    LIMIT $1 FOR UPDATE OF r SKIP LOCKED)";

const PURGE_ENDED: &str = "DELETE FROM oauth.ended_grants WHERE id IN ( \
    SELECT e.id FROM oauth.ended_grants e \
    WHERE NOT EXISTS (SELECT FROM oauth.refresh_tokens r WHERE r.grant_id = e.id) LIMIT $1 FOR UPDATE SKIP LOCKED)";

impl RefreshTokenRepository for Connection {
    async fn refresh_token_insert(&mut self, grant: GrantId, token: TokenHash, now: Time) -> Result<()> {
        let row = (
            refresh_tokens::token_hash.eq(token),
            refresh_tokens::grant_id.eq(grant),
            refresh_tokens::created_at.eq(now),
        );
        diesel::insert_into(refresh_tokens::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn refresh_token_rotate(&mut self, rotation: &Rotation) -> Result<Option<RefreshedGrant>> {
        let Rotation { token, client, successor, now, expires_at } = rotation;
        let rotate = diesel::sql_query(ROTATE)
            .bind::<Binary, _>(token)
            .bind::<Uuid, _>(client)
            .bind::<Timestamptz, _>(now)
            .bind::<Binary, _>(successor)
            .bind::<Timestamptz, _>(expires_at);
        Ok(Prepared(rotate).get_result(self).await.optional()?)
    }

    async fn refresh_token_find(&mut self, token: TokenHash, now: Time) -> Result<Option<PresentedToken>> {
        let find = diesel::sql_query(FIND).bind::<Binary, _>(token).bind::<Timestamptz, _>(now);
        Ok(Prepared(find).get_result(self).await.optional()?)
    }

    async fn refresh_token_purge(&mut self) -> Result<usize> {
        Ok(Prepared(diesel::sql_query(PURGE).bind::<BigInt, _>(BATCH_SIZE)).execute(self).await?)
    }

    async fn ended_grant_purge(&mut self) -> Result<usize> {
        Ok(Prepared(diesel::sql_query(PURGE_ENDED).bind::<BigInt, _>(BATCH_SIZE)).execute(self).await?)
    }
}
