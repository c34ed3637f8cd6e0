//! Personal access tokens.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Paging, ProjectId, Scope, Time, TokenHash, TokenId, UserId, ZoneId};
use store::{Cached, Connection, Result, newest_first};

use crate::model::{AccessToken, Restriction};
use crate::schema::{access_tokens, restrictions};

/// A personal access token to write; of the token only its hash and its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: TokenId,
    pub user_id: UserId,
    pub name: String,
    pub token_hash: TokenHash,
    pub prefix: String,
    pub scopes: Vec<Scope>,
    pub only: Option<Only>,
    pub created_at: Time,
    pub expires_at: Option<Time>,
}

/// What a token is limited to, by ids: names change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only {
    pub org: OrgId,
    /// With neither projects nor zones, the whole organization.
    pub projects: Option<Vec<ProjectId>>,
    pub zones: Option<Vec<ZoneId>>,
}

/// Personal access tokens on a [`store::Connection`].
pub trait TokenRepository {
    /// Writes a token.
    async fn token_insert(&mut self, token: &TokenRecord) -> Result<()>;

    /// One of the user's tokens, revoked or not.
    async fn token_find(&mut self, user: UserId, token: TokenId) -> Result<Option<AccessToken>>;

    /// The user's tokens, newest first, revoked ones too.
    async fn token_list(&mut self, user: UserId, paging: &Paging<TokenId>) -> Result<Vec<AccessToken>>;

    /// Revokes a token of the user's; false when there is none that is not revoked.
    async fn token_revoke(&mut self, user: UserId, token: TokenId, at: Time) -> Result<bool>;

    /// Notes that a token is in use, unless that was noted after `stale`.
    async fn token_touch(&mut self, token: TokenId, at: Time, stale: Time) -> Result<()>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = access_tokens)]
struct TokenRow {
    id: TokenId,
    name: String,
    prefix: String,
    scopes: Vec<Scope>,
    only_org: Option<OrgId>,
    only_projects: Option<Vec<ProjectId>>,
    only_zones: Option<Vec<ZoneId>>,
    created_at: Time,
    expires_at: Option<Time>,
    last_used_at: Option<Time>,
    revoked_at: Option<Time>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = restrictions)]
struct RestrictionRow {
    org: Option<String>,
    projects: Option<Vec<String>>,
    zones: Option<Vec<String>>,
}

type Found = (TokenRow, Option<RestrictionRow>);

impl TokenRepository for Connection {
    async fn token_insert(&mut self, token: &TokenRecord) -> Result<()> {
        let projects = token.only.as_ref().and_then(|only| only.projects.as_ref());
        let zones = token.only.as_ref().and_then(|only| only.zones.as_ref());
        let row = (
            access_tokens::id.eq(token.id),
            access_tokens::user_id.eq(token.user_id),
            access_tokens::name.eq(&token.name),
            access_tokens::token_hash.eq(token.token_hash),
            access_tokens::prefix.eq(&token.prefix),
            access_tokens::scopes.eq(&token.scopes),
            access_tokens::only_org.eq(token.only.as_ref().map(|only| only.org)),
            access_tokens::only_projects.eq(projects),
            access_tokens::only_zones.eq(zones),
            access_tokens::created_at.eq(token.created_at),
            access_tokens::expires_at.eq(token.expires_at),
        );
        diesel::insert_into(access_tokens::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn token_find(&mut self, user: UserId, token: TokenId) -> Result<Option<AccessToken>> {
        let found = access_tokens::table
            .left_join(restrictions::table.on(restrictions::token_id.eq(access_tokens::id.nullable())))
            .filter(access_tokens::user_id.eq(user).and(access_tokens::id.eq(token)))
            .select((TokenRow::as_select(), Option::<RestrictionRow>::as_select()))
            .first::<Found>(self)
            .await
            .optional()?;
        Ok(found.map(AccessToken::from))
    }

    async fn token_list(&mut self, user: UserId, paging: &Paging<TokenId>) -> Result<Vec<AccessToken>> {
        let all = access_tokens::table
            .left_join(restrictions::table.on(restrictions::token_id.eq(access_tokens::id.nullable())))
            .select((TokenRow::as_select(), Option::<RestrictionRow>::as_select()));
        let page = newest_first!(all, access_tokens::user_id = user, access_tokens::id, paging);
        Ok(page.load::<Found>(self).await?.into_iter().map(AccessToken::from).collect())
    }

    async fn token_revoke(&mut self, user: UserId, token: TokenId, at: Time) -> Result<bool> {
        let live = access_tokens::user_id.eq(user).and(access_tokens::revoked_at.is_null());
        let revoke =
            diesel::update(access_tokens::table.find(token).filter(live)).set(access_tokens::revoked_at.eq(at));
        Ok(Cached(revoke).execute(self).await? == 1)
    }

    async fn token_touch(&mut self, token: TokenId, at: Time, stale: Time) -> Result<()> {
        let old = access_tokens::last_used_at.is_null().or(access_tokens::last_used_at.lt(stale));
        let touch =
            diesel::update(access_tokens::table.find(token).filter(old)).set(access_tokens::last_used_at.eq(at));
        Cached(touch).execute(self).await?;
        Ok(())
    }
}

impl From<Found> for AccessToken {
    fn from((row, only): Found) -> Self {
        let TokenRow {
            id,
            name,
            prefix,
            scopes,
            created_at,
            expires_at,
            last_used_at,
            revoked_at,
            only_org,
            only_projects,
            only_zones,
        } = row;
        let RestrictionRow { org, projects, zones } =
            only.unwrap_or(RestrictionRow { org: None, projects: None, zones: None });
        // Of a place that its user does not belong to any more, the ids are what is told.
        let restrict = only_org.map(|id| Restriction {
            org: org.unwrap_or_else(|| id.to_string()),
            projects: projects.or_else(|| only_projects.map(texts)),
            zones: zones.or_else(|| only_zones.map(texts)),
        });
        Self { id, name, scopes, restrict, prefix, created_at, expires_at, last_used_at, revoked_at }
    }
}

fn texts<T: ToString>(ids: Vec<T>) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
