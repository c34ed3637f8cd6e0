//! Grants.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{ClientId, GrantId, Paging, Scope, ScopeSet, Time, UserId};
use store::{BATCH_SIZE, Connection, Prepared, Result, newest_first, purge_batch};

use crate::model::Grant;
use crate::schema::{clients, grants};

/// A grant to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    pub id: GrantId,
    pub client: ClientId,
    pub user: UserId,
    pub scopes: ScopeSet,
    pub created_at: Time,
    pub expires_at: Time,
}

/// A grant that was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct EndedGrant {
    #[diesel(sql_type = Uuid)]
    pub id: GrantId,
    #[diesel(sql_type = Uuid)]
    pub client_id: ClientId,
    #[diesel(sql_type = Uuid)]
    pub user_id: UserId,
}

/// Selects the grants to end.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrantFilter {
    pub grant: Option<GrantId>,
    pub user: Option<UserId>,
    pub client: Option<ClientId>,
}

/// Grants on a [`store::Connection`].
pub trait GrantRepository {
    /// Inserts a grant.
    async fn grant_insert(&mut self, grant: &GrantRecord) -> Result<()>;

    /// Lists the live grants of a user, newest first.
    async fn grant_list(&mut self, user: UserId, now: Time, paging: &Paging<GrantId>) -> Result<Vec<Grant>>;

    /// Ends a batch of the live grants that match all given ids, and returns them.
    async fn grant_end(&mut self, filter: GrantFilter, now: Time) -> Result<Vec<EndedGrant>>;

    /// Keeps this new grant of a user to a client, and the `others` most recently used ones. Ends the user's other
    /// grants to the client, and returns them.
    async fn grant_end_unused(&mut self, new: &GrantRecord, others: i64) -> Result<Vec<EndedGrant>>;

    /// Stores the current refresh token of a grant, sealed.
    async fn grant_set_successor(&mut self, grant: GrantId, successor: Sealed) -> Result<()>;

    /// Records a use of an access token, unless the stored time is later than `stale`.
    async fn grant_touch(&mut self, grant: GrantId, now: Time, stale: Time) -> Result<()>;

    /// Deletes a batch of expired grants, and returns their number.
    async fn grant_purge(&mut self, now: Time) -> Result<usize>;

    /// Deletes the sealed refresh tokens that were created before this time, for a batch of grants. Returns their
    /// number.
    async fn grant_purge_successors(&mut self, before: Time) -> Result<usize>;
}

const END: &str = "DELETE FROM oauth.grants WHERE id IN ( \
    SELECT id FROM oauth.grants \
    WHERE expires_at > $1 AND ($2::uuid IS NOT NULL OR $4::uuid IS NOT NULL) \
      AND ($2 IS NULL OR id = $2) AND ($3::uuid IS NULL OR user_id = $3) AND ($4 IS NULL OR client_id = $4) \
    LIMIT $5 FOR UPDATE) \
    RETURNING id, client_id, user_id";
/// Skips grants that another transaction is changing, because they are in use. The new grant is not always the most
/// recent one, because clocks can be set back.
const END_UNUSED: &str = "DELETE FROM oauth.grants WHERE id IN ( \
    SELECT id FROM oauth.grants WHERE client_id = $1 AND user_id = $2 AND id <> $4 \
    ORDER BY coalesce(last_used_at, created_at) DESC, id DESC OFFSET $3 FOR UPDATE SKIP LOCKED) \
    RETURNING id, client_id, user_id";
const PURGE: &str = "DELETE FROM oauth.grants WHERE id IN ( \
    SELECT id FROM oauth.grants WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)";
const PURGE_SUCCESSORS: &str = "UPDATE oauth.grants SET successor = NULL, key_id = NULL WHERE id IN ( \
    SELECT g.id FROM oauth.grants g JOIN oauth.refresh_tokens r ON r.grant_id = g.id AND r.rotated_at IS NULL \
    WHERE g.successor IS NOT NULL AND r.created_at <= $1 LIMIT $2 FOR UPDATE OF g SKIP LOCKED)";

type GrantRow = (GrantId, ClientId, String, Vec<Scope>, Time, Option<Time>);

impl GrantRepository for Connection {
    async fn grant_insert(&mut self, grant: &GrantRecord) -> Result<()> {
        let row = (
            grants::id.eq(grant.id),
            grants::client_id.eq(grant.client),
            grants::user_id.eq(grant.user),
            grants::scopes.eq(grant.scopes.iter().collect::<Vec<_>>()),
            grants::created_at.eq(grant.created_at),
            grants::expires_at.eq(grant.expires_at),
        );
        diesel::insert_into(grants::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn grant_list(&mut self, user: UserId, now: Time, paging: &Paging<GrantId>) -> Result<Vec<Grant>> {
        let live = grants::table.inner_join(clients::table).filter(grants::expires_at.gt(now)).select((
            grants::id,
            grants::client_id,
            clients::name,
            grants::scopes,
            grants::created_at,
            grants::last_used_at,
        ));
        let rows: Vec<GrantRow> = newest_first!(live, grants::user_id = user, grants::id, paging).load(self).await?;
        let grant = |(sid, client_id, client_name, scopes, created_at, last_used_at)| Grant {
            sid,
            client_id,
            client_name,
            scopes,
            created_at,
            last_used_at,
        };
        Ok(rows.into_iter().map(grant).collect())
    }

    async fn grant_end(&mut self, filter: GrantFilter, now: Time) -> Result<Vec<EndedGrant>> {
        let end = diesel::sql_query(END)
            .bind::<Timestamptz, _>(now)
            .bind::<Nullable<Uuid>, _>(filter.grant)
            .bind::<Nullable<Uuid>, _>(filter.user)
            .bind::<Nullable<Uuid>, _>(filter.client)
            .bind::<BigInt, _>(BATCH_SIZE);
        Ok(Prepared(end).load(self).await?)
    }

    async fn grant_end_unused(&mut self, new: &GrantRecord, others: i64) -> Result<Vec<EndedGrant>> {
        let end = diesel::sql_query(END_UNUSED)
            .bind::<Uuid, _>(new.client)
            .bind::<Uuid, _>(new.user)
            .bind::<BigInt, _>(others)
            .bind::<Uuid, _>(new.id);
        Ok(Prepared(end).load(self).await?)
    }

    async fn grant_set_successor(&mut self, grant: GrantId, successor: Sealed) -> Result<()> {
        let Sealed { key_id, bytes } = successor;
        let update =
            diesel::update(grants::table.find(grant)).set((grants::successor.eq(bytes), grants::key_id.eq(key_id)));
        Prepared(update).execute(self).await?;
        Ok(())
    }

    async fn grant_touch(&mut self, grant: GrantId, now: Time, stale: Time) -> Result<()> {
        let old = grants::last_used_at.is_null().or(grants::last_used_at.lt(stale));
        let touch = diesel::update(grants::table.find(grant).filter(old)).set(grants::last_used_at.eq(now));
        Prepared(touch).execute(self).await?;
        Ok(())
    }

    async fn grant_purge(&mut self, now: Time) -> Result<usize> {
        purge_batch(self, PURGE, now).await
    }

    async fn grant_purge_successors(&mut self, before: Time) -> Result<usize> {
        purge_batch(self, PURGE_SUCCESSORS, before).await
    }
}
