//! The exchange of an authorization code (RFC 6749 section 4.1.3).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::{Token, TokenKind};
use ring::digest::{SHA256, digest};
use store::{Connection, Outcome};

use super::{OAuth, Result, client_actor};
use crate::error::OAuthError;
use crate::model::{AuthenticatedClient, CodeExchange, TokenResponse};
use crate::repository::{CodeRecord, CodeRepository as _};

const UNUSABLE: OAuthError =
    OAuthError::InvalidGrant("the code is unknown, expired or used, or belongs to another client or redirect URI");

impl OAuth {
    /// Exchanges a code for a grant. Checks everything before it marks the code as used, so that a wrong request does
    /// not use up the code. A second use of the code ends the grant that the first use created.
    ///
    /// # Errors
    /// Returns [`OAuthError::InvalidGrant`], [`OAuthError::InvalidTarget`] or [`OAuthError::NoSigningKey`].
    pub async fn exchange_code(
        &self,
        client: &AuthenticatedClient,
        exchange: CodeExchange,
        request_id: &str,
    ) -> Result<TokenResponse> {
        self.check_resource(exchange.resource.as_deref())?;
        let code = Token::parse(TokenKind::AuthorizationCode, &exchange.code).ok_or(UNUSABLE)?.hash();
        let record = self.store.connection().await?.code_find(code).await?.ok_or(UNUSABLE)?;
        require_match(&record, client, &exchange)?;
        let keys = self.signing_keys().await?;
        let now = self.now();
        if record.grant.is_none() && record.expires_at <= now {
            return Err(UNUSABLE);
        }
        let actor = client_actor(record.user, record.client, request_id);
        let result = self
            .store
            .transaction(&actor, async |tx: &mut Connection| {
                let holder = (record.user, record.client);
                let (grant, response, event) = self.create_grant(tx, &keys, holder, record.scopes, now).await?;
                if tx.code_use(code, grant, now).await? { Ok(Outcome::Changed(response, event)) } else { Err(UNUSABLE) }
            })
            .await;
        if let Err(OAuthError::InvalidGrant(_)) = result {
            // Read the code again. If a concurrent exchange was faster, its grant is only visible now.
            let used = self.store.connection().await?.code_find(code).await?.and_then(|record| record.grant);
            if let Some(grant) = used {
                self.end_reused(&actor, record.user, grant, "code_reuse").await?;
            }
        }
        result
    }
}

/// Checks that the exchange belongs to the authorization request.
fn require_match(record: &CodeRecord, client: &AuthenticatedClient, exchange: &CodeExchange) -> Result<()> {
    if record.client != client.id() || record.redirect_uri != exchange.redirect_uri {
        return Err(UNUSABLE);
    }
    let verifier = &exchange.code_verifier;
    // RFC 7636 section 4.1.
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if !(43..=128).contains(&verifier.len()) || !verifier.bytes().all(is_unreserved) {
        return Err(OAuthError::InvalidGrant("the code_verifier must be 43 to 128 unreserved characters"));
    }
    if URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes())) != record.code_challenge {
        return Err(OAuthError::InvalidGrant("the code_verifier does not match the code_challenge"));
    }
    Ok(())
}
