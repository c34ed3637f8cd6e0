//! Clients.

use kernel::{ClientId, Scope, ScopeSet, Secret, Time, Token};
use serde::Serialize;

use crate::redirect_uri::RedirectUri;
use crate::repository::ClientRecord;

/// A client as a user sees it before the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "Example app", "redirectHosts": ["app.example"] })))]
pub struct ConsentClient {
    pub client_id: ClientId,
    pub name: String,
    /// The hosts to which the client may redirect, or the schemes of a native app.
    pub redirect_hosts: Vec<String>,
    /// The scopes that the client may have.
    pub scopes: Vec<Scope>,
}

/// A client to register.
#[derive(Debug, Clone)]
pub struct NewClient {
    /// The name that users see. 1 to 100 characters.
    pub name: String,
    pub redirect_uris: Vec<String>,
    /// The scopes that the client may have. `None` for all scopes.
    pub scopes: Option<ScopeSet>,
    /// Whether the client can keep a secret.
    pub confidential: bool,
    /// Whether the client may use the device flow. Such a client needs no redirect URI.
    pub device: bool,
}

/// A registered client. Only this value contains its secret.
#[derive(Debug)]
pub struct ClientCreated {
    pub id: ClientId,
    /// The secret. `None` for a public client.
    pub secret: Option<Token>,
}

/// The authentication of a client at the token endpoint (RFC 6749 section 2.3).
#[derive(Debug)]
pub struct ClientAuthentication {
    pub client_id: String,
    /// The secret of a confidential client.
    pub secret: Option<Secret>,
}

/// A client that authenticated itself, or a public client that only stated its id.
#[derive(Debug, Clone)]
pub struct AuthenticatedClient(pub(crate) ClientRecord);

impl AuthenticatedClient {
    /// Returns the client's id.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.0.id
    }

    /// Returns whether the client proved its identity with a secret. Anyone can state the id of a public client.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        self.0.secret_hash.is_some()
    }
}

impl From<ClientRecord> for ConsentClient {
    fn from(client: ClientRecord) -> Self {
        let uris = client.redirect_uris.iter().filter_map(|uri| RedirectUri::parse(uri).ok());
        let mut redirect_hosts: Vec<String> = Vec::new();
        for host in uris.map(|uri| uri.host()) {
            if !redirect_hosts.contains(&host) {
                redirect_hosts.push(host);
            }
        }
        Self { client_id: client.id, name: client.name, redirect_hosts, scopes: client.scopes.iter().collect() }
    }
}

/// A client as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredClient {
    pub client_id: ClientId,
    pub name: String,
    pub redirect_uris: Vec<String>,
    pub scopes: Vec<Scope>,
    pub confidential: bool,
    pub device: bool,
    pub created_at: Time,
}

impl From<ClientRecord> for RegisteredClient {
    fn from(client: ClientRecord) -> Self {
        let ClientRecord { id, name, redirect_uris, scopes, secret_hash, device, created_at } = client;
        let scopes = scopes.iter().collect();
        Self { client_id: id, name, redirect_uris, scopes, confidential: secret_hash.is_some(), device, created_at }
    }
}
