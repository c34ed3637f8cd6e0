//! Requests and responses of the token endpoint.

use kernel::Token;
use serde::Serialize;

/// The exchange of an authorization code (RFC 6749 section 4.1.3).
#[derive(Debug)]
pub struct CodeExchange {
    pub code: String,
    pub redirect_uri: String,
    /// The code verifier (RFC 7636 section 4.5).
    pub code_verifier: String,
    pub resource: Option<String>,
}

/// A refresh (RFC 6749 section 6).
#[derive(Debug)]
pub struct RefreshRequest {
    pub refresh_token: String,
    /// The scopes of this access token, if they are only a part of the grant's scopes.
    pub scope: Option<String>,
    pub resource: Option<String>,
}

/// An access token with its signature. Its `Debug` implementation does not show it.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AccessToken(pub(crate) String);

impl AccessToken {
    /// Returns the token.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

/// The response of the token endpoint (RFC 6749 section 5.1).
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(as = OAuthTokenResponse, example = json!({
        "access_token": "eyJ0eXAiOiJhdCtqd3QiLCJhbGciOiJFUzI1NiJ9.…",
        "token_type": "Bearer",
        "expires_in": 900,
        "refresh_token": "svc_ort_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA",
        "scope": "account:read project:read",
    }))
)]
pub struct TokenResponse {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub access_token: AccessToken,
    /// The token type, which is always `Bearer`.
    pub token_type: &'static str,
    /// The lifetime of the access token in seconds.
    pub expires_in: i64,
    /// The refresh token to use for the next refresh.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub refresh_token: Token,
    /// The scopes of the access token, separated by spaces.
    pub scope: String,
}
