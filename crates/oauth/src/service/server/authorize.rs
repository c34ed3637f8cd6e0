//! Authorization requests (RFC 6749 section 4.1).

use kernel::audit::Actor;
use kernel::{ClientId, InvalidField, ScopeSet, Token, TokenKind, UserId};
use store::Connection;

use super::{CODE_SECONDS, OAuth, Result, requested_scopes};
use crate::error::OAuthError;
use crate::model::{AuthorizationRequest, AuthorizationResponse, ConsentClient};
use crate::redirect_uri::{RedirectUri, with_parameters};
use crate::repository::{ClientRecord, ClientRepository as _, CodeRecord, CodeRepository as _};

impl OAuth {
    /// Returns the client of an authorization request, which the dashboard shows before the user decides.
    ///
    /// # Errors
    /// Returns [`OAuthError::NotConfigured`] or [`OAuthError::ClientNotFound`].
    pub async fn client(&self, client: ClientId) -> Result<ConsentClient> {
        self.config()?;
        let found = self.store.connection().await?.client_find(client).await?;
        found.map(ConsentClient::from).ok_or(OAuthError::ClientNotFound)
    }

    /// Returns the redirect to the client, with a code if the user approved, or with an error. The client also receives
    /// an error for an unknown scope and for the resource of another service (contract section 3, "Errors at
    /// authorize").
    ///
    /// # Errors
    /// Returns [`OAuthError::NotConfigured`]. Returns [`OAuthError::Field`] for an unknown client and for a redirect
    /// URI that is not registered, because the browser must not be sent there.
    pub async fn authorize(
        &self,
        actor: &Actor,
        user: UserId,
        request: AuthorizationRequest,
    ) -> Result<AuthorizationResponse> {
        let issuer = self.config()?.issuer.clone();
        let client = self.store.connection().await?.client_find(request.client_id).await?.ok_or_else(unknown_client)?;
        require_registered(&client, &request.redirect_uri)?;
        let result = match self.decide(actor, user, &client, &request).await {
            Ok(code) => Ok(code),
            Err(OAuthError::AccessDenied) => Err(("access_denied", "the user denied the request")),
            Err(OAuthError::InvalidScope) => {
                Err(("invalid_scope", "the scope is unknown, or exceeds what the client may have"))
            }
            Err(OAuthError::InvalidTarget) => {
                Err(("invalid_target", "the resource is not the audience of this server"))
            }
            Err(error) => return Err(error),
        };
        let mut parameters = match &result {
            Ok(code) => vec![("code", code.reveal())],
            Err((error, description)) => vec![("error", *error), ("error_description", *description)],
        };
        parameters.extend(request.state.as_deref().map(|state| ("state", state)));
        parameters.push(("iss", &issuer));
        Ok(AuthorizationResponse { redirect: with_parameters(&request.redirect_uri, &parameters) })
    }

    /// Makes the checks whose errors the client may receive, and stores a code.
    async fn decide(
        &self,
        actor: &Actor,
        user: UserId,
        client: &ClientRecord,
        request: &AuthorizationRequest,
    ) -> Result<Token> {
        let scopes = requested_scopes(request.scope.as_deref(), client.scopes)?;
        self.check_resource(request.resource.as_deref().filter(|resource| !resource.is_empty()))?;
        if !request.approve {
            return Err(OAuthError::AccessDenied);
        }
        let code = Token::mint(TokenKind::AuthorizationCode, self.store.clock_rng());
        let record = self.code(user, request, scopes, &code);
        self.store
            .transaction_unaudited_as(actor, async |tx: &mut Connection| {
                tx.client_share(client.id).await?.ok_or_else(unknown_client)?;
                Ok(tx.code_insert(&record).await?)
            })
            .await
            .map(|()| code)
    }

    fn code(&self, user: UserId, request: &AuthorizationRequest, scopes: ScopeSet, code: &Token) -> CodeRecord {
        let created_at = self.now();
        CodeRecord {
            code_hash: code.hash(),
            client: request.client_id,
            user,
            redirect_uri: request.redirect_uri.clone(),
            code_challenge: request.code_challenge.to_string(),
            scopes,
            created_at,
            expires_at: created_at.plus_seconds(CODE_SECONDS),
            grant: None,
        }
    }
}

fn unknown_client() -> OAuthError {
    InvalidField::new("client_id", "must be the id of a registered client").into()
}

fn require_registered(client: &ClientRecord, requested: &str) -> Result<()> {
    let mut registered = client.redirect_uris.iter().filter_map(|uri| RedirectUri::parse(uri).ok());
    if registered.any(|uri| uri.matches(requested)) {
        Ok(())
    } else {
        Err(InvalidField::new("redirect_uri", "must be a redirect URI that the client has registered").into())
    }
}
