//! The authorization server.

mod authorize;
mod device;
mod exchange;
mod grant;
mod issue;
mod purge;
mod refresh;
mod revoke;

use kernel::audit::{Actor, Credential};
use kernel::{ClientId, ScopeSet, Time, Token, TokenKind, UserId};
use store::Store;
use url::Url;

use crate::error::OAuthError;
use crate::jwt::{InvalidToken, RejectedToken, VerifiedToken};
use crate::keys::SigningKeys;
use crate::model::{AuthenticatedClient, ClientAuthentication};
use crate::repository::ClientRepository as _;

type Result<T> = std::result::Result<T, OAuthError>;

/// The time in which a code can be exchanged (contract section 3).
const CODE_SECONDS: i64 = 60;
/// The lifetime of a grant without a refresh (contract section 3).
const GRANT_SECONDS: i64 = 60 * 24 * 3600;

/// The configuration of the authorization server.
#[derive(Debug, Clone)]
pub struct OAuthConfig {
    /// The issuer (RFC 8414 section 2), which is an origin.
    pub issuer: String,
    /// The audience of the access tokens.
    pub audience: String,
    /// The seconds for which a client may repeat a refresh whose response was lost. 0 disables repetition.
    pub refresh_grace_seconds: i64,
    /// The page on which users enter user codes. `None` if the device flow is off.
    pub device_verification_uri: Option<String>,
    /// The client of `svc login --device`.
    pub cli_client: Option<ClientId>,
}

impl OAuthConfig {
    /// Returns whether the audience identifies the origin `url` as a protected resource. Clients accept the metadata of
    /// a resource only at the address that is derived from its identifier (RFC 9728 section 3.3).
    #[must_use]
    pub fn is_resource_at(&self, url: &str) -> bool {
        match (Url::parse(&self.audience), Url::parse(url)) {
            (Ok(audience), Ok(url)) => audience == url && url.path() == "/",
            _ => false,
        }
    }
}

/// The authorization server. It is off without a configuration.
#[derive(Debug, Clone)]
pub struct OAuth {
    store: Store,
    config: Option<std::sync::Arc<OAuthConfig>>,
    keys: SigningKeys,
}

impl OAuth {
    /// Creates the service.
    #[must_use]
    pub fn new(store: Store, config: Option<OAuthConfig>) -> Self {
        Self { keys: SigningKeys::new(store.clone()), store, config: config.map(std::sync::Arc::new) }
    }

    /// Returns the configuration.
    ///
    /// # Errors
    /// Returns [`OAuthError::NotConfigured`] if the authorization server is off.
    pub fn config(&self) -> Result<&OAuthConfig> {
        self.config.as_deref().ok_or(OAuthError::NotConfigured)
    }

    /// Returns the signing keys.
    #[must_use]
    pub fn keys(&self) -> &SigningKeys {
        &self.keys
    }

    /// Verifies an access token. Queries the database only if this process has not loaded the keys yet, or the key is
    /// unknown. The caller must also check that the grant exists.
    ///
    /// # Errors
    /// Returns [`RejectedToken`].
    pub async fn verify(&self, token: &str) -> std::result::Result<VerifiedToken, RejectedToken> {
        let config = self.config.as_deref().ok_or(InvalidToken("not_configured"))?;
        self.keys.verify(token, &config.issuer, &config.audience).await
    }

    /// Authenticates a client of the token endpoint. A confidential client must present its secret, and a public client
    /// must not present one (RFC 6749 section 3.2.1).
    ///
    /// # Errors
    /// Returns [`OAuthError::NotConfigured`] or [`OAuthError::InvalidClient`].
    pub async fn authenticate_client(&self, presented: ClientAuthentication) -> Result<AuthenticatedClient> {
        self.config()?;
        let id: ClientId = presented.client_id.parse().map_err(|_| OAuthError::InvalidClient)?;
        let client = self.store.connection().await?.client_find(id).await?.ok_or(OAuthError::InvalidClient)?;
        let presented = match &presented.secret {
            None => None,
            Some(secret) => {
                Some(Token::parse(TokenKind::ClientSecret, secret.reveal()).ok_or(OAuthError::InvalidClient)?.hash())
            }
        };
        // Both values are digests of 256 random bits, so the time of the comparison reveals nothing about the secret.
        if presented == client.secret_hash { Ok(AuthenticatedClient(client)) } else { Err(OAuthError::InvalidClient) }
    }

    fn now(&self) -> Time {
        self.store.clock_rng().now()
    }

    /// Checks a resource indicator (RFC 8707 section 2).
    fn check_resource(&self, resource: Option<&str>) -> Result<()> {
        match resource {
            Some(resource) if !is_audience(resource, &self.config()?.audience) => Err(OAuthError::InvalidTarget),
            _ => Ok(()),
        }
    }
}

/// Returns whether a resource indicator is the audience, or the audience as URL parsers serialize it: they write an
/// origin with the path `/` (RFC 3986 section 6.2.3), and clients send this form.
fn is_audience(resource: &str, audience: &str) -> bool {
    resource == audience || Url::parse(audience).is_ok_and(|audience| audience.as_str() == resource)
}

/// Returns the requested scopes, which `allowed` must cover. If the request has none, returns all of `allowed`.
fn requested_scopes(scope: Option<&str>, allowed: ScopeSet) -> Result<ScopeSet> {
    let Some(scope) = scope.filter(|scope| !scope.is_empty()) else { return Ok(allowed) };
    let requested: ScopeSet = scope.parse().map_err(|_| OAuthError::InvalidScope)?;
    if allowed.covers_all(requested) { Ok(requested) } else { Err(OAuthError::InvalidScope) }
}

/// Returns the actor for a client that acts on behalf of a user.
fn client_actor(user: UserId, client: ClientId, request_id: &str) -> Actor {
    Actor::user(user, Credential::Client(client), None, request_id)
}
