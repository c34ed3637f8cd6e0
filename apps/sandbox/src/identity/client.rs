//! The registration of clients (RFC 7591).

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::AUTHORIZATION;
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::IdentityProvider;
use crate::http::{Request, Response};
use crate::oauth::TokenError;
use crate::sessions::random_text;
use crate::values::new_id;

/// The credentials of a registered client.
#[derive(Debug, Clone)]
pub struct IdentityClient {
    pub client_id: String,
    pub client_secret: String,
    /// The addresses to which the provider sends a browser back. They match exactly.
    pub redirect_uris: Vec<String>,
}

/// The registered clients of a provider.
#[derive(Debug, Default)]
pub(super) struct Clients(HashMap<String, IdentityClient>);

impl Clients {
    /// Registers a client.
    ///
    /// # Errors
    /// Returns the reason for which a redirect URI is not allowed.
    pub fn register(&mut self, provider: IdentityProvider, uris: &[&str]) -> Result<IdentityClient, String> {
        if uris.is_empty() {
            return Err("At least one redirect URI is required.".to_owned());
        }
        let is_allowed = |uri: &str| {
            Url::parse(uri).is_ok_and(|url| ["http", "https"].contains(&url.scheme()) && url.fragment().is_none())
        };
        if let Some(uri) = uris.iter().find(|uri| !is_allowed(uri)) {
            return Err(format!("The redirect URI {uri} is not an http or https URL without a fragment."));
        }
        let client = IdentityClient {
            client_id: format!("{}-{}", provider.as_str(), new_id()),
            client_secret: random_text(),
            redirect_uris: uris.iter().map(|uri| (*uri).to_owned()).collect(),
        };
        self.0.insert(client.client_id.clone(), client.clone());
        Ok(client)
    }

    /// Returns all clients, in the order of their ids.
    pub fn all(&self) -> Vec<&IdentityClient> {
        let mut clients: Vec<_> = self.0.values().collect();
        clients.sort_by(|a, b| a.client_id.cmp(&b.client_id));
        clients
    }

    /// Returns whether the client of an authorization request is registered with its redirect URI.
    pub fn allow(&self, request: &Request) -> bool {
        let uri = request.parameter("redirect_uri");
        let client = self.0.get(request.parameter("client_id"));
        client.is_some_and(|client| client.redirect_uris.iter().any(|registered| registered == uri))
    }

    /// Checks the credentials in a token request (RFC 6749 section 2.3.1): in the body, or with HTTP Basic. Returns the
    /// id of the client.
    pub fn authenticate(&self, request: &Request, requires_basic: bool) -> Result<String, TokenError> {
        let (id, secret) = if requires_basic {
            basic(request).ok_or(TokenError::Client)?
        } else {
            (request.parameter("client_id").to_owned(), request.parameter("client_secret").to_owned())
        };
        let client = self.0.get(&id).ok_or(TokenError::Client)?;
        if client.client_secret == secret { Ok(id) } else { Err(TokenError::Client) }
    }

    /// Responds to a registration request (RFC 7591 section 3).
    pub fn respond(&mut self, provider: IdentityProvider, request: &Request) -> Response {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let uris = body["redirect_uris"].as_array().into_iter().flatten();
        let uris: Vec<&str> = uris.map(|uri| uri.as_str().unwrap_or_default()).collect();
        match self.register(provider, &uris) {
            Ok(client) => {
                let registration = json!({
                    "client_id": client.client_id, "client_secret": client.client_secret,
                    "client_secret_expires_at": 0, "redirect_uris": client.redirect_uris,
                    "token_endpoint_auth_method": "client_secret_post",
                });
                Response { status: 201, ..Response::json(&registration) }
            }
            Err(reason) => {
                let error = json!({ "error": "invalid_redirect_uri", "error_description": reason });
                Response { status: 400, ..Response::json(&error) }
            }
        }
    }
}

/// Returns the credentials of HTTP Basic. A request must not contain the secret in its body too.
fn basic(request: &Request) -> Option<(String, String)> {
    if !request.parameter("client_secret").is_empty() {
        return None;
    }
    let credentials = STANDARD.decode(request.header(AUTHORIZATION).strip_prefix("Basic ")?).ok()?;
    let credentials = String::from_utf8(credentials).ok()?;
    let (id, secret) = credentials.split_once(':')?;
    let decode = |text: &str| form_urlencoded::parse(text.as_bytes()).next().map(|(text, _)| text.into_owned());
    Some((decode(id)?, decode(secret)?))
}
