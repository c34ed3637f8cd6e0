//! The use cases of personal access tokens.

use kernel::audit::{Actor, Event};
use kernel::{Malformed, Page, Paging, Token, TokenId, TokenKind, UserId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Identity, Result};
use crate::error::IdentityError;
use crate::model::{AccessToken, AccessTokenCreated, NewAccessToken, Restrict};
use crate::repository::{Only, TokenRecord, TokenRepository as _};

/// How much of a token is kept for people to tell theirs apart (contract section 2).
const PREFIX: usize = 12;

impl Identity {
    /// Creates a token: the one time that it is shown.
    ///
    /// # Errors
    /// [`IdentityError::Field`] for an expiry that has passed, and for a place that the user may not limit it to.
    pub async fn token_create(&self, actor: &Actor, user: UserId, new: NewAccessToken) -> Result<AccessTokenCreated> {
        let NewAccessToken { name, mut scopes, expires_at, restrict } = new;
        let (world, now) = (self.store.world(), self.store.world().now());
        if expires_at.is_some_and(|at| at <= now) {
            return Err(Malformed::new("expiresAt", "must lie in the future").into());
        }
        scopes.sort_unstable();
        scopes.dedup();
        let token = Token::mint(TokenKind::Access, world);
        let prefix = token.reveal().chars().take(PREFIX).collect();
        let (id, name, token_hash): (TokenId, _, _) = (world.id_at(now), name.to_string(), token.hash());
        self.store
            .transaction(actor, async |tx| {
                let only = match &restrict {
                    None => None,
                    Some(restrict) => Some(self.only(tx, user, restrict).await?),
                };
                let data = json!({ "scopes": scopes, "org": only.as_ref().map(|only| only.org),
                    "projects": only.as_ref().and_then(|only| only.projects.clone()),
                    "zones": only.as_ref().and_then(|only| only.zones.clone()), "expiresAt": expires_at });
                let record = TokenRecord {
                    id,
                    user_id: user,
                    name,
                    token_hash,
                    prefix,
                    scopes,
                    only,
                    created_at: now,
                    expires_at,
                };
                tx.token_insert(&record).await?;
                let about = tx.token_find(user, id).await?.ok_or_else(|| store::Error::inconsistent("no token"))?;
                let event = Event { name: "token.create", org: None, target: id.to_string(), data };
                Ok(Outcome::Changed(AccessTokenCreated { about, token }, event))
            })
            .await
    }

    /// The user's tokens, newest first; revoked and expired ones too.
    ///
    /// # Errors
    /// [`IdentityError::Store`].
    pub async fn tokens(&self, user: UserId, paging: &Paging<TokenId>) -> Result<Page<AccessToken>> {
        let tokens = self.store.connection().await?.token_list(user, paging).await?;
        Ok(Page::cut(tokens, paging, |token| token.id))
    }

    /// One of the user's tokens.
    ///
    /// # Errors
    /// [`IdentityError::TokenNotFound`].
    pub async fn token(&self, user: UserId, token: TokenId) -> Result<AccessToken> {
        self.store.connection().await?.token_find(user, token).await?.ok_or(IdentityError::TokenNotFound)
    }

    /// Revokes a token; it opens nothing from the next request on. Its row stays in the list, and one that is revoked
    /// already stays as it is.
    ///
    /// # Errors
    /// [`IdentityError::TokenNotFound`].
    pub async fn token_revoke(&self, actor: &Actor, user: UserId, token: TokenId) -> Result<()> {
        let now = self.store.world().now();
        self.store
            .transaction(actor, async |tx| {
                if tx.token_revoke(user, token, now).await? {
                    let event = Event { name: "token.revoke", org: None, target: token.to_string(), data: json!({}) };
                    return Ok(Outcome::Changed((), event));
                }
                // Somebody was faster: it is what was asked for.
                let found = tx.token_find(user, token).await?;
                found.map(|_| Outcome::Unchanged(())).ok_or(IdentityError::TokenNotFound)
            })
            .await
    }

    /// The ids of the targets that a token is restricted to.
    async fn only(&self, tx: &mut Connection, user: UserId, restrict: &Restrict) -> Result<Only> {
        let Restrict { org, projects, zones } = restrict;
        let no_org = || Malformed::new("restrict.org", "must be the slug of an organization that you belong to");
        let org = self.places.org(tx, user, org).await?.ok_or_else(no_org)?;
        let projects = match projects {
            None => None,
            Some(names) => {
                let none = "there is no such project in the organization";
                Some(
                    ids(tx, names, "restrict.projects", none, async |tx, name| {
                        self.places.project(tx, org, name).await
                    })
                    .await?,
                )
            }
        };
        let zones = match zones {
            None => None,
            Some(names) => {
                let none = "there is no such zone in the organization";
                Some(
                    ids(tx, names, "restrict.zones", none, async |tx, name| self.places.zone(tx, org, name).await)
                        .await?,
                )
            }
        };
        Ok(Only { org, projects, zones })
    }
}

/// The ids of what is named, each once.
async fn ids<T: Ord>(
    tx: &mut Connection,
    names: &[String],
    field: &str,
    none: &'static str,
    find: impl AsyncFn(&mut Connection, &str) -> store::Result<Option<T>>,
) -> Result<Vec<T>> {
    let mut ids = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        ids.push(find(tx, name).await?.ok_or_else(|| Malformed::new(format!("{field}[{at}]"), none))?);
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
