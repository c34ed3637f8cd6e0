//! Creation of grants, and signing of access tokens.

use kernel::audit::{Actor, Event};
use kernel::{ClientId, GrantId, ScopeSet, Time, Token, TokenKind, UserId};
use serde_json::json;
use store::Connection;
use uuid::Uuid;

use super::{GRANT_SECONDS, OAuth, Result};
use crate::error::OAuthError;
use crate::jwt::Claims;
use crate::keys::{ACCESS_TOKEN_SECONDS, KeySet};
use crate::model::{AccessToken, TokenResponse};
use crate::repository::{ClientRepository as _, GrantRecord, GrantRepository as _, RefreshTokenRepository as _};
use crate::service::client::enqueue_revocations;

/// The maximum number of live grants of a user to one client. If a client signs its user in more often, its oldest
/// grants end.
const MAX_GRANTS: i64 = 100;

/// The holder of an access token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    pub(super) client: ClientId,
    pub(super) user: UserId,
    pub(super) grant: GrantId,
}

impl OAuth {
    /// Creates a grant with its tokens, and returns the event of the operation.
    pub(super) async fn create_grant(
        &self,
        tx: &mut Connection,
        keys: &KeySet,
        (user, client): (UserId, ClientId),
        scopes: ScopeSet,
        now: Time,
    ) -> Result<(GrantId, TokenResponse, Event)> {
        tx.client_share(client).await?.ok_or(OAuthError::InvalidClient)?;
        let grant: GrantId = self.store.clock_rng().id_at(now);
        let expires_at = now.plus_seconds(GRANT_SECONDS);
        let record = GrantRecord { id: grant, client, user, scopes, created_at: now, expires_at };
        tx.grant_insert(&record).await?;
        let refresh_token = Token::mint(TokenKind::RefreshToken, self.store.clock_rng());
        tx.refresh_token_insert(grant, refresh_token.hash(), now).await?;
        let ended = tx.grant_end_unused(&record, MAX_GRANTS - 1).await?;
        enqueue_revocations(&self.store, tx, &ended).await?;
        let response = self.token_response(keys, Holder { client, user, grant }, scopes, refresh_token, now)?;
        let ended: Vec<GrantId> = ended.iter().map(|ended| ended.id).collect();
        let data = json!({ "client": client, "scopes": scopes.to_string(), "ended": ended });
        Ok((grant, response, Event::of_account("oauth.grant.create", user, grant, data)))
    }

    /// Signs an access token.
    pub(super) fn token_response(
        &self,
        keys: &KeySet,
        holder: Holder,
        scopes: ScopeSet,
        refresh_token: Token,
        now: Time,
    ) -> Result<TokenResponse> {
        let config = self.config()?;
        let key = keys.current(now).ok_or(OAuthError::NoSigningKey)?;
        let Holder { client, user, grant } = holder;
        let expires_at = now.plus_seconds(ACCESS_TOKEN_SECONDS);
        let claims = Claims { user, client, grant, scopes, issued_at: now, expires_at };
        let token_id: Uuid = self.store.clock_rng().id_at(now);
        let signed = key.signer().sign(&config.issuer, &config.audience, &token_id.to_string(), &claims)?;
        Ok(TokenResponse {
            access_token: AccessToken(signed),
            token_type: "Bearer",
            expires_in: ACCESS_TOKEN_SECONDS,
            refresh_token,
            scope: scopes.to_string(),
        })
    }

    /// Returns the keys. Creates the first key of the installation if there is none.
    pub(super) async fn signing_keys(&self) -> Result<std::sync::Arc<KeySet>> {
        let keys = self.keys.get().await?;
        if keys.current(self.now()).is_some() {
            return Ok(keys);
        }
        // The background job that creates the first key has not run yet in this process.
        self.keys.ensure(&Actor::service("oauth.load_keys")).await?;
        self.keys.load().await
    }
}
