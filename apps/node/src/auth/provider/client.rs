//! The requests to a provider.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use daemon::error_chain;
use protocol::{AuthProvider, AuthProviderKind};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Url};
use serde_json::Value;

use super::id_token::{self, Claims, Expected};
use super::keys::Keys;
use super::{Profile, ProviderError, Result};
use crate::auth::config::{AuthConfig, ClientAuthentication, ProviderConfig, is_openid};
use crate::clock::since_epoch;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time of a request, with its repetition. All requests of a sign-in must end within its deadline.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest response.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// GitHub rejects requests without this header.
const USER_AGENT: &str = "svc-node";

/// The providers of the node.
pub struct Providers(BTreeMap<AuthProviderKind, Provider>);

/// A provider of the node.
pub struct Provider {
    kind: AuthProviderKind,
    config: ProviderConfig,
    client: Client,
    /// `None` if the signatures of ID tokens are not verified.
    keys: Option<Keys>,
}

/// The parameters of a flow, with which a code becomes a profile.
pub struct Exchange<'a> {
    /// The client of the project.
    pub registered: &'a AuthProvider,
    pub code: &'a str,
    pub redirect_uri: &'a str,
    /// The PKCE verifier.
    pub verifier: &'a str,
    pub nonce: &'a str,
}

impl Providers {
    /// Creates the clients. They follow no redirects and use no proxy, so that secrets are sent only to the configured
    /// addresses.
    ///
    /// # Errors
    /// Returns an error if TLS cannot be set up.
    pub fn new(config: &AuthConfig) -> reqwest::Result<Self> {
        let client = Client::builder()
            .user_agent(USER_AGENT)
            .default_headers(HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]))
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()?;
        let providers = config.providers.iter().map(|(kind, config)| {
            let keys = config.signatures.as_ref().map(|it| Keys::new(it.jwks_url.clone()));
            (*kind, Provider { kind: *kind, config: config.clone(), client: client.clone(), keys })
        });
        Ok(Self(providers.collect()))
    }

    /// Returns a provider; `None` if the node does not reach it.
    pub fn get(&self, kind: AuthProviderKind) -> Option<&Provider> {
        self.0.get(&kind)
    }
}

impl Provider {
    pub const fn kind(&self) -> AuthProviderKind {
        self.kind
    }

    /// Returns the name that the operator chose.
    pub fn name(&self) -> Option<&str> {
        self.config.name.as_deref()
    }

    /// Returns the address to which the visitor is redirected (RFC 6749 section 4.1.1, RFC 7636 section 4.3).
    pub fn authorization_url(
        &self,
        client_id: &str,
        redirect_uri: &str,
        state: &str,
        challenge: &str,
        nonce: &str,
    ) -> Url {
        let mut url = self.config.authorize_url.clone();
        let mut query = url.query_pairs_mut();
        query.append_pair("response_type", "code").append_pair("client_id", client_id);
        query.append_pair("redirect_uri", redirect_uri).append_pair("state", state);
        query.append_pair("code_challenge", challenge).append_pair("code_challenge_method", "S256");
        if is_openid(self.kind) {
            query.append_pair("scope", "openid email profile").append_pair("nonce", nonce);
        } else {
            query.append_pair("scope", "read:user");
        }
        drop(query);
        url
    }

    /// Exchanges a code for the profile of the person who signed in.
    ///
    /// # Errors
    /// Returns an error if the provider rejects the code or fails, or if its ID token is not valid for this flow.
    pub async fn exchange(&self, exchange: &Exchange<'_>) -> Result<Profile> {
        let tokens = self.tokens(exchange).await?;
        let text = |name: &str| tokens.get(name).and_then(Value::as_str);
        let access_token = text("access_token").ok_or_else(|| ProviderError::failed("no access token"))?;
        let subject = match text("id_token") {
            _ if !is_openid(self.kind) => None,
            None => return Err(ProviderError::failed("no ID token")),
            Some(token) => Some(self.check(token, exchange).await?.subject),
        };
        let user = self.user(access_token).await?;
        let profile = if is_openid(self.kind) { Profile::of_openid(&user) } else { Profile::of_code_host(&user) };
        let profile = profile.ok_or_else(|| ProviderError::failed("the user has no id"))?;
        if subject.is_some_and(|subject| subject != profile.subject) {
            return Err(ProviderError::failed("the ID token and the user endpoint describe different users"));
        }
        Ok(profile)
    }

    async fn tokens(&self, exchange: &Exchange<'_>) -> Result<Value> {
        let malformed = || ProviderError::failed("the token request cannot be written");
        let (id, secret) = (exchange.registered.client_id.as_str(), exchange.registered.client_secret.reveal());
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", exchange.code),
            ("redirect_uri", exchange.redirect_uri),
            ("code_verifier", exchange.verifier),
        ];
        let mut request = self.client.post(self.config.token_url.clone());
        match self.config.authentication {
            ClientAuthentication::Post => form.extend([("client_id", id), ("client_secret", secret)]),
            ClientAuthentication::Basic => {
                request = request.header(AUTHORIZATION, basic(id, secret).ok_or_else(malformed)?);
            }
        }
        let form = serde_urlencoded::to_string(form).map_err(|_| malformed())?;
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
        let (status, body) = send(request).await?;
        // GitHub reports errors with status 200.
        let response: Option<Value> = serde_json::from_slice(&body).ok();
        let error = response.as_ref().and_then(|response| response.get("error")?.as_str().map(str::to_owned));
        match (status, error.as_deref(), response) {
            (_, Some("invalid_grant" | "bad_verification_code"), _) => Err(ProviderError::RejectedCode),
            (200, None, Some(response)) => Ok(response),
            (status, Some("invalid_client" | "incorrect_client_credentials" | "unauthorized_client"), _) => {
                Err(ProviderError::failed(format!("the token endpoint rejected the client (status {status})")))
            }
            (status, ..) => Err(ProviderError::failed(format!("the token endpoint failed with status {status}"))),
        }
    }

    async fn check(&self, token: &str, exchange: &Exchange<'_>) -> Result<Claims> {
        let issuer = self.config.signatures.as_ref().map(|it| it.issuer.as_str());
        let (client_id, nonce, now) = (&exchange.registered.client_id, exchange.nonce, since_epoch());
        let token = id_token::Token::read(token)?;
        if let Some(keys) = &self.keys {
            keys.verify(&self.client, &token).await?;
        }
        token.check(&Expected { issuer, client_id, nonce, now })
    }

    async fn user(&self, access_token: &str) -> Result<Value> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {access_token}"))
            .map_err(|_| ProviderError::failed("the access token is malformed"))?;
        authorization.set_sensitive(true);
        let request = self.client.get(self.config.user_url.clone()).header(AUTHORIZATION, authorization);
        let (status, body) = send(request).await?;
        if status != 200 {
            return Err(ProviderError::failed(format!("the user endpoint failed with status {status}")));
        }
        serde_json::from_slice(&body).map_err(|_| ProviderError::failed("the user endpoint did not send JSON"))
    }
}

/// Returns the header `Authorization: Basic`. The id and the secret are form-encoded before they are joined (RFC 6749
/// section 2.3.1).
fn basic(id: &str, secret: &str) -> Option<HeaderValue> {
    // A form with one parameter: its only `=` separates the two.
    let credentials = serde_urlencoded::to_string([(id, secret)]).ok()?.replacen('=', ":", 1);
    let mut header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(credentials))).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Sends a request, repeats it once after a 429, and returns the status and the body.
pub(super) async fn send(request: RequestBuilder) -> Result<(u16, Bytes)> {
    let failed = |error: reqwest::Error| ProviderError::Failed(error_chain(error.without_url()));
    let mut response = retry::send(request, REQUEST_TIMEOUT).await.map_err(failed)?;
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(ProviderError::failed("the response is too long"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((response.status().as_u16(), body.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_are_form_encoded() {
        for (id, secret, credentials) in [
            ("client", "secret", "client:secret"),
            ("a.b-c_d", "x=y", "a.b-c_d:x%3Dy"),
            ("https://app.example", "a:b+c %", "https%3A%2F%2Fapp.example:a%3Ab%2Bc+%25"),
        ] {
            let header = basic(id, secret).unwrap();
            assert_eq!(header, format!("Basic {}", STANDARD.encode(credentials)).as_str());
            assert!(header.is_sensitive());
        }
    }
}
