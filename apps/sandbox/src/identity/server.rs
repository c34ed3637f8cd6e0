//! The providers for tests.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Identity, IdentityClient, IdentityFault, IdentityProvider, Person};
use crate::http;

/// The three providers on a free port. Browsers choose a person on the sign-in page: a form with `person` at the
/// address of the authorization request, and optionally with `fault`, the name of a fault of this sign-in.
#[derive(Debug)]
pub struct IdentityServer {
    identity: Arc<Identity>,
    _task: JoinSet<()>,
}

impl IdentityServer {
    /// Starts the providers.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start() -> Self {
        let respond = |identity: Arc<Identity>, request| async move { identity.respond(&request).await };
        let (_, identity, task) = http::serve_on_free_port(Identity::new, respond).await;
        Self { identity, _task: task }
    }

    /// Returns the base URL of a provider, which is also the issuer of its ID tokens. The endpoints are `/authorize`,
    /// `/token`, `/user` and `/jwks`.
    #[must_use]
    pub fn url(&self, provider: IdentityProvider) -> &str {
        &self.identity.provider(provider).issuer
    }

    /// Returns the settings with which a node uses the providers, and checks the signatures of ID tokens.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 13] {
        use IdentityProvider::{CodeHost, Messenger, WebAccount};
        [
            ("SVC_NODE_AUTH_CODEHOST_AUTHORIZE_URL", CodeHost, "/authorize"),
            ("SVC_NODE_AUTH_CODEHOST_TOKEN_URL", CodeHost, "/token"),
            ("SVC_NODE_AUTH_CODEHOST_USER_URL", CodeHost, "/user"),
            ("SVC_NODE_AUTH_WEBACCOUNT_AUTHORIZE_URL", WebAccount, "/authorize"),
            ("SVC_NODE_AUTH_WEBACCOUNT_TOKEN_URL", WebAccount, "/token"),
            ("SVC_NODE_AUTH_WEBACCOUNT_USER_URL", WebAccount, "/user"),
            ("SVC_NODE_AUTH_WEBACCOUNT_ISSUER", WebAccount, ""),
            ("SVC_NODE_AUTH_WEBACCOUNT_JWKS_URL", WebAccount, "/jwks"),
            ("SVC_NODE_AUTH_MESSENGER_AUTHORIZE_URL", Messenger, "/authorize"),
            ("SVC_NODE_AUTH_MESSENGER_TOKEN_URL", Messenger, "/token"),
            ("SVC_NODE_AUTH_MESSENGER_USER_URL", Messenger, "/user"),
            ("SVC_NODE_AUTH_MESSENGER_ISSUER", Messenger, ""),
            ("SVC_NODE_AUTH_MESSENGER_JWKS_URL", Messenger, "/jwks"),
        ]
        .map(|(name, provider, path)| (name, format!("{}{path}", self.url(provider))))
    }

    /// Registers a client with these redirect URIs.
    ///
    /// # Panics
    /// Panics if a redirect URI is not allowed.
    #[must_use]
    pub fn register(&self, provider: IdentityProvider, redirect_uris: &[&str]) -> IdentityClient {
        self.identity.provider(provider).state().clients.register(provider, redirect_uris).unwrap()
    }

    /// Adds a person, or replaces the one with the same key.
    pub fn add_person(&self, provider: IdentityProvider, person: Person) {
        self.identity.provider(provider).state().add_person(person);
    }

    /// Injects a fault into every following request and sign-in at a provider, or removes it.
    pub fn inject(&self, provider: IdentityProvider, fault: Option<IdentityFault>) {
        self.identity.provider(provider).state().fault = fault;
    }

    /// Makes a provider require HTTP Basic from clients at the token endpoint.
    pub fn require_basic(&self, provider: IdentityProvider) {
        self.identity.provider(provider).state().requires_basic = true;
    }

    /// Replaces the key that signs the ID tokens of a provider.
    pub fn renew_key(&self, provider: IdentityProvider) {
        self.identity.provider(provider).renew_key();
    }

    /// Returns the method and path of the last requests that an app's platform sent to a provider, oldest first.
    #[must_use]
    pub fn requests(&self, provider: IdentityProvider) -> Vec<String> {
        self.identity.provider(provider).state().requested.iter().cloned().collect()
    }
}
