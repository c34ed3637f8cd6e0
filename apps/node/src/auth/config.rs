//! The configuration of the identity providers (providers.md section 6).

use std::collections::BTreeMap;
use std::str::FromStr;

use protocol::AuthProviderKind;
use reqwest::Url;

/// The identity providers that the node can reach. Projects register their own clients at them.
#[derive(Debug, Clone, Default)]
pub struct AuthConfig {
    pub providers: BTreeMap<AuthProviderKind, ProviderConfig>,
}

/// An identity provider.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// The endpoint to which visitors are redirected.
    pub authorize_url: Url,
    /// The endpoint that exchanges a code for tokens.
    pub token_url: Url,
    /// The endpoint that describes the user of an access token.
    pub user_url: Url,
    /// How the clients of projects are authenticated at the token endpoint.
    pub authentication: ClientAuthentication,
    /// How the signatures of ID tokens are verified; `None` if they are not.
    pub signatures: Option<SignatureConfig>,
    /// The name that visitors see; `None` for a general one in their language.
    pub name: Option<String>,
}

/// How a client sends its secret to the token endpoint (RFC 6749 section 2.3.1, OpenID Connect Core section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// In the body: `client_secret_post`.
    Post,
    /// With HTTP Basic: `client_secret_basic`.
    Basic,
}

impl FromStr for ClientAuthentication {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "post" => Ok(Self::Post),
            "basic" => Ok(Self::Basic),
            _ => Err("expected post or basic"),
        }
    }
}

/// How the signatures of ID tokens are verified.
#[derive(Debug, Clone)]
pub struct SignatureConfig {
    /// The expected claim `iss`.
    pub issuer: String,
    /// The address of the keys (RFC 7517).
    pub jwks_url: Url,
}

/// Returns whether a provider speaks OpenID Connect, and not only OAuth 2.0.
pub const fn is_openid(provider: AuthProviderKind) -> bool {
    match provider {
        AuthProviderKind::Codehost => false,
        AuthProviderKind::Webaccount | AuthProviderKind::Messenger => true,
    }
}
