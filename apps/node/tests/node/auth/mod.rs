//! App user auth: the pages, the flows with the providers of the sandbox, the sessions and `env.auth`.

mod browser;
mod client;
mod flows;
mod limits;
mod pages;
mod restores;
mod sessions;
mod store;
mod upkeep;
mod worker;

use std::ops::{Deref, DerefMut};

use protocol::{Auth, AuthBrand, AuthProvider, AuthProviderKind, SecretValue};
use sandbox::{IdentityClient, IdentityProvider, IdentityServer};

use self::browser::Browser;
use crate::database::kit::{Kit, eventually};

const HOST: &str = "app.localhost";
const PROJECT: &str = "app";

/// A node with the project `app`, which has a database, a page and all providers.
struct Rig {
    kit: Kit,
    identity: IdentityServer,
    clients: Vec<(IdentityProvider, IdentityClient)>,
}

impl Deref for Rig {
    type Target = Kit;

    fn deref(&self) -> &Kit {
        &self.kit
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Kit {
        &mut self.kit
    }
}

impl Rig {
    /// Starts the node. Returns `None` without the programs of Postgres.
    async fn start() -> Option<Self> {
        Self::start_with(&[], &[]).await
    }

    /// Starts the node with more settings, and without some of those of the providers. Returns `None` without the
    /// programs of Postgres.
    async fn start_with(settings: &[(&str, &str)], without: &[&str]) -> Option<Self> {
        let rig = Self::start_node(settings, without).await?;
        rig.enable_auth(&IdentityProvider::ALL).await;
        Some(rig)
    }

    /// Starts the node without app user auth.
    async fn start_disabled() -> Option<Self> {
        Self::start_node(&[], &[]).await
    }

    async fn start_node(settings: &[(&str, &str)], without: &[&str]) -> Option<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let identity = IdentityServer::start().await;
        let own = settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let settings = identity.settings().into_iter().filter(|(name, _)| !without.contains(name)).chain(own);
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).collect();
        let mut kit = Kit::start_with(settings).await?;
        kit.enable(PROJECT).await;
        kit.core.deploy(PROJECT, &[("assets/index.html", b"home"), ("assets/members.html", b"members")]);
        kit.visitor().await.sees(HOST, "/", 200, "home").await;
        let clients = clients(&identity, "http://app.localhost");
        Some(Self { kit, identity, clients })
    }

    /// Returns the part `auth` with these providers.
    fn auth(&self, providers: &[IdentityProvider]) -> Auth {
        let registered = self.clients.iter().filter(|(provider, _)| providers.contains(provider));
        let providers = registered.map(|(provider, client)| AuthProvider {
            provider: kind(*provider),
            registration: 1,
            client_id: client.client_id.clone(),
            client_secret: SecretValue::new(client.client_secret.clone()),
        });
        let (brand, providers) = (AuthBrand::default(), providers.collect());
        Auth { grant: 1, session_days: 30, brand, provider_revision: 1, providers }
    }

    /// Enables app user auth, and waits until the node serves it.
    async fn enable_auth(&self, providers: &[IdentityProvider]) {
        self.set_auth(&self.auth(providers));
        let visitor = self.visitor().await;
        eventually("the sign-in", async || visitor.get(HOST, "/__svc/auth/session").await.status == 200).await;
    }

    /// Sets the part `auth`. The node applies it later.
    fn set_auth(&self, auth: &Auth) {
        self.core.set_part(PROJECT, "auth", serde_json::to_value(auth).unwrap());
    }

    /// Sets the part `auth`, and waits until the node has applied it.
    async fn apply_auth(&self, auth: &Auth) {
        let brand = AuthBrand { name: Some(format!("applied {}", self.core.revision())), ..auth.brand.clone() };
        let name = brand.name.clone().unwrap();
        self.set_auth(&Auth { brand, ..auth.clone() });
        let visitor = self.visitor().await;
        let applied = async || visitor.get(HOST, "/__svc/auth/none").await.body.contains(&name);
        eventually("the settings", applied).await;
    }

    async fn browser(&self) -> Browser {
        Browser::new(self.visitor().await, HOST)
    }
}

/// Registers a client of a project at each provider.
fn clients(identity: &IdentityServer, origin: &str) -> Vec<(IdentityProvider, IdentityClient)> {
    let register = |provider: IdentityProvider| {
        let uri = format!("{origin}/__svc/auth/callback/{}", provider.as_str());
        (provider, identity.register(provider, &[&uri]))
    };
    IdentityProvider::ALL.map(register).into()
}

fn kind(provider: IdentityProvider) -> AuthProviderKind {
    match provider {
        IdentityProvider::CodeHost => AuthProviderKind::Codehost,
        IdentityProvider::WebAccount => AuthProviderKind::Webaccount,
        IdentityProvider::Messenger => AuthProviderKind::Messenger,
    }
}

/// Returns the id of the user of a browser.
async fn user_id(browser: &mut Browser) -> String {
    let user = browser.user().await;
    assert!(user.is_object(), "the browser is not signed in");
    user["id"].as_str().unwrap().to_owned()
}
