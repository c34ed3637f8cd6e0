//! Refresh token rotation (RFC 6749 section 6, RFC 9700 section 4.14.2).

use kernel::{ScopeSet, Token, TokenHash, TokenKind};
use store::Connection;

use super::issue::Holder;
use super::{GRANT_SECONDS, OAuth, Result, client_actor, requested_scopes};
use crate::SUCCESSOR;
use crate::error::OAuthError;
use crate::keys::KeySet;
use crate::model::{AuthenticatedClient, RefreshRequest, TokenResponse};
use crate::repository::{GrantRepository as _, PresentedToken, RefreshTokenRepository as _, Rotation};

const UNUSABLE: OAuthError =
    OAuthError::InvalidGrant("the refresh token is unknown, expired, revoked or used, or belongs to another client");

impl OAuth {
    /// Uses a refresh token, and returns its successor. A narrower scope applies only to the new access token. A second
    /// use of a refresh token ends its grant, unless the client repeats its last refresh within the grace period.
    ///
    /// # Errors
    /// Returns [`OAuthError::InvalidGrant`], [`OAuthError::InvalidScope`], [`OAuthError::InvalidTarget`] or
    /// [`OAuthError::NoSigningKey`].
    pub async fn refresh(
        &self,
        client: &AuthenticatedClient,
        request: RefreshRequest,
        request_id: &str,
    ) -> Result<TokenResponse> {
        self.check_resource(request.resource.as_deref())?;
        let token = Token::parse(TokenKind::RefreshToken, &request.refresh_token).ok_or(UNUSABLE)?.hash();
        let keys = self.signing_keys().await?;
        let now = self.now();
        let successor = Token::mint(TokenKind::RefreshToken, self.store.clock_rng());
        let expires_at = now.plus_seconds(GRANT_SECONDS);
        let rotation = Rotation { token, client: client.id(), successor: successor.hash(), now, expires_at };
        let rotated = self
            .store
            .transaction_unaudited::<_, OAuthError>(async |tx: &mut Connection| {
                let Some(grant) = tx.refresh_token_rotate(&rotation).await? else { return Ok(None) };
                let holder = Holder { client: client.id(), user: grant.user_id, grant: grant.id };
                // An error for the scope rolls the rotation back.
                let scopes = requested_scopes(request.scope.as_deref(), grant.scopes.into_iter().collect())?;
                if self.config()?.refresh_grace_seconds > 0 {
                    let row = grant.id.as_uuid().to_string();
                    let sealed = self.store.seal(SUCCESSOR.associated_data(&row), successor.reveal().as_bytes())?;
                    tx.grant_set_successor(grant.id, sealed).await?;
                }
                self.token_response(&keys, holder, scopes, successor.clone(), now).map(Some)
            })
            .await?;
        match rotated {
            Some(response) => Ok(response),
            None => self.refresh_again(client, token, &request, &keys, request_id).await,
        }
    }

    /// Handles a token that cannot be used. If the client repeats its last refresh, returns the response of that
    /// refresh again; otherwise ends the grant.
    async fn refresh_again(
        &self,
        client: &AuthenticatedClient,
        token: TokenHash,
        request: &RefreshRequest,
        keys: &KeySet,
        request_id: &str,
    ) -> Result<TokenResponse> {
        let now = self.now();
        let found = self.store.connection().await?.refresh_token_find(token, now).await?;
        let Some(presented) = found.filter(|found| found.client_id == client.id()) else { return Err(UNUSABLE) };
        let Some(rotated_at) = presented.rotated_at else { return Err(UNUSABLE) };
        let is_graced = rotated_at.plus_seconds(self.config()?.refresh_grace_seconds) > now;
        if is_graced
            && presented.is_latest
            && let Some(successor) = self.open_successor(&presented)?
        {
            let allowed: ScopeSet = presented.scopes.iter().copied().collect();
            let scopes = requested_scopes(request.scope.as_deref(), allowed)?;
            let holder = Holder { client: client.id(), user: presented.user_id, grant: presented.grant_id };
            return self.token_response(keys, holder, scopes, successor, now);
        }
        let actor = client_actor(presented.user_id, client.id(), request_id);
        self.end_reused(&actor, presented.user_id, presented.grant_id, "refresh_token_reuse").await?;
        Err(UNUSABLE)
    }

    fn open_successor(&self, presented: &PresentedToken) -> Result<Option<Token>> {
        let Some(sealed) = presented.successor() else { return Ok(None) };
        let row = presented.grant_id.as_uuid().to_string();
        let successor = self.store.open_text(SUCCESSOR.associated_data(&row), &sealed)?;
        Ok(Token::parse(TokenKind::RefreshToken, successor.reveal()))
    }
}
