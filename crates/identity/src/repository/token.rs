//! Personal access tokens.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Paging, ProjectId, Scope, Time, TokenHash, TokenId, UserId, ZoneId};
use store::{Connection, Prepared, Result, newest_first};

use crate::model::{AccessToken, Restriction};
use crate::schema::{access_tokens, token_restrictions};

/// A personal access token to insert, with its hash and its prefix only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: TokenId,
    pub user_id: UserId,
    pub name: String,
    pub token_hash: TokenHash,
    pub prefix: String,
    pub scopes: Vec<Scope>,
    pub restriction: Option<RestrictionRecord>,
    pub created_at: Time,
    pub expires_at: Option<Time>,
}

/// The targets that a token is restricted to, by id because names change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestrictionRecord {
    pub org: OrgId,
    /// The projects. Without projects and zones, the token can access the whole organization.
    pub projects: Option<Vec<ProjectId>>,
    pub zones: Option<Vec<ZoneId>>,
}

/// Personal access tokens on a [`store::Connection`].
pub trait TokenRepository {
    /// Inserts a token.
    async fn token_insert(&mut self, token: &TokenRecord) -> Result<()>;

    /// Returns a token of the user, including a revoked one.
    async fn token_find(&mut self, user: UserId, token: TokenId) -> Result<Option<AccessToken>>;

    /// Returns the user's tokens, including revoked ones, newest first.
    async fn token_list(&mut self, user: UserId, paging: &Paging<TokenId>) -> Result<Vec<AccessToken>>;

    /// Counts the tokens of the user that are neither revoked nor expired. The result is reliable only under
    /// [`crate::IdentityRepository::user_lock`].
    async fn token_count_live(&mut self, user: UserId, at: Time) -> Result<i64>;

    /// Revokes a token of the user. Returns false if the user has no such token or it is already revoked.
    async fn token_revoke(&mut self, user: UserId, token: TokenId, at: Time) -> Result<bool>;

    /// Sets the last use of a token to `at`, unless the stored one is `stale` or later.
    async fn token_touch(&mut self, token: TokenId, at: Time, stale: Time) -> Result<()>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = access_tokens)]
struct TokenRow {
    id: TokenId,
    name: String,
    prefix: String,
    scopes: Vec<Scope>,
    restricted_org_id: Option<OrgId>,
    restricted_project_ids: Option<Vec<ProjectId>>,
    restricted_zone_ids: Option<Vec<ZoneId>>,
    created_at: Time,
    expires_at: Option<Time>,
    last_used_at: Option<Time>,
    revoked_at: Option<Time>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = token_restrictions)]
struct RestrictionRow {
    org: Option<String>,
    projects: Option<Vec<String>>,
    zones: Option<Vec<String>>,
}

/// A token, and the names of its targets.
type TokenWithNames = (TokenRow, Option<RestrictionRow>);

impl TokenRepository for Connection {
    async fn token_insert(&mut self, token: &TokenRecord) -> Result<()> {
        let projects = token.restriction.as_ref().and_then(|only| only.projects.as_ref());
        let zones = token.restriction.as_ref().and_then(|only| only.zones.as_ref());
        let row = (
            access_tokens::id.eq(token.id),
            access_tokens::user_id.eq(token.user_id),
            access_tokens::name.eq(&token.name),
            access_tokens::token_hash.eq(token.token_hash),
            access_tokens::prefix.eq(&token.prefix),
            access_tokens::scopes.eq(&token.scopes),
            access_tokens::restricted_org_id.eq(token.restriction.as_ref().map(|only| only.org)),
            access_tokens::restricted_project_ids.eq(projects),
            access_tokens::restricted_zone_ids.eq(zones),
            access_tokens::created_at.eq(token.created_at),
            access_tokens::expires_at.eq(token.expires_at),
        );
        diesel::insert_into(access_tokens::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn token_find(&mut self, user: UserId, token: TokenId) -> Result<Option<AccessToken>> {
        let found = access_tokens::table
            .left_join(token_restrictions::table.on(token_restrictions::token_id.eq(access_tokens::id.nullable())))
            .filter(access_tokens::user_id.eq(user).and(access_tokens::id.eq(token)))
            .select((TokenRow::as_select(), Option::<RestrictionRow>::as_select()))
            .first::<TokenWithNames>(self)
            .await
            .optional()?;
        Ok(found.map(AccessToken::from))
    }

    async fn token_list(&mut self, user: UserId, paging: &Paging<TokenId>) -> Result<Vec<AccessToken>> {
        let all = access_tokens::table
            .left_join(token_restrictions::table.on(token_restrictions::token_id.eq(access_tokens::id.nullable())))
            .select((TokenRow::as_select(), Option::<RestrictionRow>::as_select()));
        let page = newest_first!(all, access_tokens::user_id = user, access_tokens::id, paging);
        Ok(page.load::<TokenWithNames>(self).await?.into_iter().map(AccessToken::from).collect())
    }

    async fn token_count_live(&mut self, user: UserId, at: Time) -> Result<i64> {
        let live = access_tokens::user_id.eq(user).and(access_tokens::revoked_at.is_null());
        let unexpired = access_tokens::expires_at.is_null().or(access_tokens::expires_at.gt(at));
        Ok(access_tokens::table.filter(live.and(unexpired)).count().get_result(self).await?)
    }

    async fn token_revoke(&mut self, user: UserId, token: TokenId, at: Time) -> Result<bool> {
        let live = access_tokens::user_id.eq(user).and(access_tokens::revoked_at.is_null());
        let revoke =
            diesel::update(access_tokens::table.find(token).filter(live)).set(access_tokens::revoked_at.eq(at));
        Ok(Prepared(revoke).execute(self).await? == 1)
    }

    async fn token_touch(&mut self, token: TokenId, at: Time, stale: Time) -> Result<()> {
        let old = access_tokens::last_used_at.is_null().or(access_tokens::last_used_at.lt(stale));
        let touch =
            diesel::update(access_tokens::table.find(token).filter(old)).set(access_tokens::last_used_at.eq(at));
        Prepared(touch).execute(self).await?;
        Ok(())
    }
}

impl From<TokenWithNames> for AccessToken {
    fn from((row, only): TokenWithNames) -> Self {
        let TokenRow {
            id,
            name,
            prefix,
            scopes,
            created_at,
            expires_at,
            last_used_at,
            revoked_at,
            restricted_org_id,
            restricted_project_ids,
            restricted_zone_ids,
        } = row;
        let RestrictionRow { org, projects, zones } =
            only.unwrap_or(RestrictionRow { org: None, projects: None, zones: None });
        // Show ids for targets that the user can no longer access.
        let restrict = restricted_org_id.map(|id| Restriction {
            org: org.unwrap_or_else(|| id.to_string()),
            projects: projects.or_else(|| restricted_project_ids.map(texts)),
            zones: zones.or_else(|| restricted_zone_ids.map(texts)),
        });
        Self { id, name, scopes, restrict, prefix, created_at, expires_at, last_used_at, revoked_at }
    }
}

fn texts<T: ToString>(ids: Vec<T>) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
