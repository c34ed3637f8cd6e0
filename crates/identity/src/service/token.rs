//! Use cases of personal access tokens.

use kernel::audit::{Actor, Event};
use kernel::{InvalidField, InvalidFields, Page, Paging, Time, Token, TokenId, TokenKind, UserId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Identity, Result};
use crate::error::IdentityError;
use crate::model::{AccessToken, AccessTokenCreated, NewAccessToken, Restrict};
use crate::repository::{IdentityRepository as _, RestrictionRecord, TokenRecord, TokenRepository as _};

/// The length of the stored prefix, by which users recognize their tokens (contract section 2).
const PREFIX_CHARS: usize = 12;

impl Identity {
    /// Creates a token. Only this response contains its secret.
    ///
    /// # Errors
    /// Returns [`IdentityError::Fields`] for an expiry in the past and for restriction targets that do not exist, and
    /// [`IdentityError::TokenLimit`].
    pub async fn token_create(&self, actor: &Actor, user: UserId, new: NewAccessToken) -> Result<AccessTokenCreated> {
        let NewAccessToken { name, mut scopes, expires_at, restrict } = new;
        let (clock_rng, now) = (self.store.clock_rng(), self.store.clock_rng().now());
        let expiry = match expires_at {
            Some(at) if at <= now => Err(InvalidField::new("expiresAt", "must be in the future")),
            _ => Ok(()),
        };
        scopes.sort_unstable();
        scopes.dedup();
        let token = Token::mint(TokenKind::Access, clock_rng);
        let prefix = token.reveal().chars().take(PREFIX_CHARS).collect();
        let (id, name, token_hash): (TokenId, _, _) = (clock_rng.id_at(now), name.to_string(), token.hash());
        self.store
            .transaction(actor, async |tx| {
                let only = match &restrict {
                    None => Ok(None),
                    Some(restrict) => self.resolve_restriction(tx, user, restrict).await?.map(Some),
                };
                let ((), only) = InvalidFields::both(expiry.clone(), only)?;
                self.ensure_below_token_limit(tx, user, now).await?;
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
                    restriction: only,
                    created_at: now,
                    expires_at,
                };
                tx.token_insert(&record).await?;
                let metadata = tx.token_find(user, id).await?;
                let metadata = metadata.ok_or_else(|| store::Error::inconsistent("the new token is missing"))?;
                let event = Event::of_account("token.create", user, id, data);
                Ok(Outcome::Changed(AccessTokenCreated { metadata, token }, event))
            })
            .await
    }

    /// Returns the user's tokens, including revoked and expired ones, newest first.
    pub async fn tokens(&self, user: UserId, paging: &Paging<TokenId>) -> Result<Page<AccessToken>> {
        let tokens = self.store.connection().await?.token_list(user, paging).await?;
        Ok(Page::cut(tokens, paging, |token| token.id))
    }

    /// Returns a token of the user.
    ///
    /// # Errors
    /// Returns [`IdentityError::TokenNotFound`].
    pub async fn token(&self, user: UserId, token: TokenId) -> Result<AccessToken> {
        self.store.connection().await?.token_find(user, token).await?.ok_or(IdentityError::TokenNotFound)
    }

    /// Revokes a token. The next request with it is rejected. The token stays in the listing, and a second revocation
    /// is a no-op.
    ///
    /// # Errors
    /// Returns [`IdentityError::TokenNotFound`].
    pub async fn token_revoke(&self, actor: &Actor, user: UserId, token: TokenId) -> Result<()> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx| {
                // Lock the user, because two tokens may revoke each other concurrently. Check the caller before the
                // change, because a token may revoke itself.
                tx.user_lock(user).await?;
                let authorized = self.store.authorize(tx, actor).await?;
                if tx.token_revoke(user, token, now).await? {
                    let event = Event::of_account("token.revoke", user, token, json!({}));
                    return Ok(Outcome::ChangedAuthority((), event, authorized));
                }
                // Revoking a revoked token is a no-op.
                let found = tx.token_find(user, token).await?;
                found.map(|_| Outcome::Unchanged(())).ok_or(IdentityError::TokenNotFound)
            })
            .await
    }

    /// Locks the user, so that concurrent requests cannot exceed the limit, and counts the live tokens.
    async fn ensure_below_token_limit(&self, tx: &mut Connection, user: UserId, now: Time) -> Result<()> {
        tx.user_lock(user).await?;
        let (limit, count) = (self.limits.tokens_per_user, tx.token_count_live(user, now).await?);
        if count >= i64::from(limit) { Err(IdentityError::TokenLimit { limit, count }) } else { Ok(()) }
    }

    /// Resolves the names of a restriction to ids.
    async fn resolve_restriction(
        &self,
        tx: &mut Connection,
        user: UserId,
        restrict: &Restrict,
    ) -> store::Result<Fields<RestrictionRecord>> {
        let Restrict { org, projects, zones } = restrict;
        let Some(org) = self.restriction_targets.org(tx, user, org).await? else {
            let message = "must be the slug of an organization of which you are a member";
            return Ok(Err(InvalidField::new("restrict.org", message).into()));
        };
        let missing = "must be the name of a project in the organization";
        let projects = resolve_names(tx, projects.as_deref(), "restrict.projects", missing, async |tx, name| {
            self.restriction_targets.project(tx, org, name).await
        });
        let projects = projects.await?;
        let missing = "must be the name of a zone in the organization";
        let zones = resolve_names(tx, zones.as_deref(), "restrict.zones", missing, async |tx, name| {
            self.restriction_targets.zone(tx, org, name).await
        });
        let resolved = InvalidFields::both(projects, zones.await?);
        Ok(resolved.map(|(projects, zones)| RestrictionRecord { org, projects, zones }))
    }
}

/// A value of a request, or its invalid fields.
type Fields<T> = std::result::Result<T, InvalidFields>;

/// Resolves the names of a restriction, if it has any, to ids, sorted and without duplicates.
async fn resolve_names<T: Ord>(
    tx: &mut Connection,
    names: Option<&[String]>,
    field: &str,
    missing: &'static str,
    find: impl AsyncFn(&mut Connection, &str) -> store::Result<Option<T>>,
) -> store::Result<Fields<Option<Vec<T>>>> {
    let Some(names) = names else { return Ok(Ok(None)) };
    let mut found = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        found.push(find(tx, name).await?.ok_or_else(|| InvalidField::new(format!("{field}[{at}]"), missing)));
    }
    Ok(InvalidFields::all(found).map(|mut ids| {
        ids.sort_unstable();
        ids.dedup();
        Some(ids)
    }))
}
