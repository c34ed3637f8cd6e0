//! The test fixture: the service on a separate database per test, with a user and a public client.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;

use kernel::audit::Actor;
use kernel::{ClientId, Secret, UserId};
use oauth::{
    AuthenticatedClient, AuthorizationRequest, ClientAuthentication, Clients, CodeExchange, NewClient, OAuth,
    OAuthConfig, OAuthError, RefreshRequest, TokenResponse,
};
use serde_json::json;
use testkit::TestStore;

const REDIRECT_URI: &str = "https://app.example/callback";
/// The verifier of RFC 7636, appendix B, and its challenge.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// The address of the client.
pub const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

pub struct Kit {
    pub oauth: OAuth,
    pub client: AuthenticatedClient,
    pub user: UserId,
    base: TestStore,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    pub async fn start() -> Self {
        Self::with_grace(0).await
    }

    /// Starts with this grace period for a repeated refresh, in seconds.
    pub async fn with_grace(seconds: i64) -> Self {
        let base = TestStore::start().await;
        let oauth = Self::server(&base, seconds);
        let new = NewClient {
            name: "Example app".to_owned(),
            redirect_uris: vec![REDIRECT_URI.to_owned()],
            scopes: None,
            confidential: false,
            device: true,
        };
        let client: ClientId = Clients::new(base.store.clone()).add(&operator(), new).await.unwrap().id;
        let presented = ClientAuthentication { client_id: client.to_string(), secret: None };
        let client = oauth.authenticate_client(presented).await.unwrap();
        let user: UserId = base.store.clock_rng().id();
        let insert = format!(
            "INSERT INTO identity.users (id, provider, subject, created_at) VALUES ('{}', 'dev', 'ada', now())",
            user.as_uuid()
        );
        base.db_execute(&insert).await;
        Self { oauth, client, user, base }
    }

    /// Registers a confidential client.
    pub async fn confidential_client(&self) -> AuthenticatedClient {
        let new = NewClient {
            name: "Confidential app".to_owned(),
            redirect_uris: Vec::new(),
            scopes: None,
            confidential: true,
            device: true,
        };
        let created = Clients::new(self.base.store.clone()).add(&operator(), new).await.unwrap();
        let secret = created.secret.map(|secret| Secret::new(secret.reveal().to_owned()));
        let presented = ClientAuthentication { client_id: created.id.to_string(), secret };
        self.oauth.authenticate_client(presented).await.unwrap()
    }

    /// Creates the service of another process of the installation.
    pub fn server(base: &TestStore, refresh_grace_seconds: i64) -> OAuth {
        let config = OAuthConfig {
            issuer: "https://api.example".to_owned(),
            audience: "https://api.example".to_owned(),
            refresh_grace_seconds,
            device_verification_uri: Some("https://dashboard.example/oauth/device".to_owned()),
            cli_client: None,
        };
        OAuth::new(base.store.clone(), Some(config))
    }

    /// Creates the service of another process of the installation.
    pub fn another_server(&self) -> OAuth {
        Self::server(&self.base, 0)
    }

    /// Approves a request of the client, and returns the code.
    pub async fn code(&self) -> String {
        let request = json!({ "response_type": "code", "client_id": self.client.id(), "redirect_uri": REDIRECT_URI,
            "code_challenge": CHALLENGE, "code_challenge_method": "S256" });
        let request: AuthorizationRequest = serde_json::from_value(request).unwrap();
        let response = self.oauth.authorize(&operator(), self.user, request).await.unwrap();
        let url = url::Url::parse(&response.redirect).unwrap();
        url.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned()
    }

    pub async fn exchange(&self, code: String) -> Result<TokenResponse, OAuthError> {
        let exchange = CodeExchange {
            code,
            redirect_uri: REDIRECT_URI.to_owned(),
            code_verifier: VERIFIER.to_owned(),
            resource: None,
        };
        self.oauth.exchange_code(&self.client, exchange, "req-1").await
    }

    /// Creates a grant.
    pub async fn sign_in(&self) -> TokenResponse {
        self.exchange(self.code().await).await.unwrap()
    }

    pub async fn refresh(&self, tokens: &TokenResponse) -> Result<TokenResponse, OAuthError> {
        let refresh_token = tokens.refresh_token.reveal().to_owned();
        let request = RefreshRequest { refresh_token, scope: None, resource: None };
        self.oauth.refresh(&self.client, request, "req-1").await
    }

    pub async fn grants(&self) -> i64 {
        self.db_number("SELECT count(*) FROM oauth.grants").await
    }
}

/// Returns an actor whom no policy checks.
pub fn operator() -> Actor {
    Actor::operator("test")
}
