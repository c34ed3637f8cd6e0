//! Token revocation (RFC 7009).

use kernel::{GrantId, Token, TokenKind, UserId};

use super::{OAuth, Result, client_actor};
use crate::jwt::RejectedToken;
use crate::model::AuthenticatedClient;
use crate::repository::RefreshTokenRepository as _;

impl OAuth {
    /// Ends the grant of an access token or of a refresh token, even of a used one. This is a no-op for a token that is
    /// unknown, expired or of another client.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`](crate::OAuthError::Store).
    pub async fn revoke(&self, client: &AuthenticatedClient, token: &str, request_id: &str) -> Result<()> {
        let Some((user, grant)) = self.find_grant(client, token).await? else { return Ok(()) };
        let actor = client_actor(user, client.id(), request_id);
        self.end_grant(&actor, user, grant, "client").await.map(drop)
    }

    async fn find_grant(&self, client: &AuthenticatedClient, token: &str) -> Result<Option<(UserId, GrantId)>> {
        if let Some(token) = Token::parse(TokenKind::RefreshToken, token) {
            let found = self.store.connection().await?.refresh_token_find(token.hash(), self.now()).await?;
            let own = found.filter(|found| found.client_id == client.id());
            return Ok(own.map(|found| (found.user_id, found.grant_id)));
        }
        match self.verify(token).await {
            Ok(verified) if verified.client == client.id() => Ok(Some((verified.user, verified.grant))),
            Ok(_) | Err(RejectedToken::Invalid(_)) => Ok(None),
            Err(RejectedToken::Keys(error)) => Err(error),
        }
    }
}
