//! A connected app that calls the endpoints of the authorization server, for benchmarks and fault injection.

use anyhow::{Context as _, Result, ensure};
use kernel::audit::Actor;
use kernel::seal::Keys;
use kernel::{ClientId, ClockRng, Secret};
use oauth::{Clients, NewClient};
use reqwest::{Client, Url};
use serde_json::{Value, json};
use store::Store;
use xtask::credential::random_key;

use crate::bench::server::{SEALING_KEY, string_at};

/// The issuer of the server under test.
pub const ISSUER: &str = "https://oauth.svc.example";

const REDIRECT_URI: &str = "https://app.example/callback";
/// [`REDIRECT_URI`] in a form.
const REDIRECT_URI_IN_FORM: &str = "https%3A%2F%2Fapp.example%2Fcallback";
/// A code verifier and its challenge (RFC 7636, appendix B).
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// A sealing key that the server under test and the lab share.
pub struct SharedKey(String);

/// A registered public app.
#[derive(Clone)]
pub struct ConnectedApp {
    pub id: ClientId,
    client: Client,
    base: String,
}

/// A response of an endpoint.
pub struct Reply {
    pub status: u16,
    pub body: Value,
}

/// The tokens of a grant.
#[derive(Debug, Clone)]
pub struct Tokens {
    pub access: String,
    pub refresh: String,
}

impl SharedKey {
    pub fn generate() -> Self {
        Self(format!("{SEALING_KEY}:{}", random_key()))
    }

    /// Returns the setting of the server.
    pub fn setting(&self) -> (&'static str, String) {
        ("SVC_SEALING_KEYS", self.0.clone())
    }

    /// Returns the settings that turn the authorization server on.
    pub fn settings(&self) -> [(&'static str, String); 2] {
        [("SVC_OAUTH_ISSUER", ISSUER.to_owned()), self.setting()]
    }

    /// Returns a store with the key of the server.
    pub fn store(&self, database_url: &str) -> Result<Store> {
        let keys = Keys::parse(&self.0).context("the generated key is malformed")?;
        let config = store::Config { keys, ..store::Config::new(Secret::new(database_url.to_owned()), "lab") };
        Ok(Store::new(&config, ClockRng::system())?)
    }
}

impl ConnectedApp {
    /// Registers an app, as the command of an operator does.
    pub async fn register(store: &Store, client: &Client, base: &str) -> Result<Self> {
        let new = NewClient {
            name: "lab".to_owned(),
            redirect_uris: vec![REDIRECT_URI.to_owned()],
            scopes: None,
            confidential: false,
            device: false,
        };
        let created = Clients::new(store.clone()).add(&Actor::operator("lab"), new).await?;
        Ok(Self { id: created.id, client: client.clone(), base: base.to_owned() })
    }

    /// Returns the same app, which calls another server.
    pub fn at(&self, base: &str) -> Self {
        Self { base: base.to_owned(), ..self.clone() }
    }

    /// Sends an authorization request that the user of the session approves.
    pub async fn authorize(&self, session: &str) -> Result<Reply> {
        let body = json!({
            "response_type": "code", "client_id": self.id, "redirect_uri": REDIRECT_URI,
            "code_challenge": CHALLENGE, "code_challenge_method": "S256",
        });
        let request = self.client.post(format!("{}/v1/oauth/authorize", self.base)).bearer_auth(session).json(&body);
        Reply::read(request).await
    }

    /// Returns a code for all scopes.
    pub async fn code(&self, session: &str) -> Result<String> {
        self.authorize(session).await?.code()
    }

    pub async fn exchange(&self, code: &str) -> Result<Reply> {
        let grant = "grant_type=authorization_code";
        let form = format!("{grant}&code={code}&redirect_uri={REDIRECT_URI_IN_FORM}&code_verifier={VERIFIER}");
        self.post("token", form).await
    }

    /// Creates a grant.
    pub async fn sign_in(&self, session: &str) -> Result<Tokens> {
        self.exchange(&self.code(session).await?).await?.tokens()
    }

    pub async fn refresh(&self, token: &str) -> Result<Reply> {
        self.post("token", format!("grant_type=refresh_token&refresh_token={token}")).await
    }

    pub async fn revoke(&self, token: &str) -> Result<Reply> {
        self.post("revoke", format!("token={token}")).await
    }

    /// Returns the status of `GET /v1/me` with an access token.
    pub async fn use_token(&self, access: &str) -> Result<u16> {
        let request = self.client.get(format!("{}/v1/me", self.base)).bearer_auth(access);
        Ok(request.send().await?.status().as_u16())
    }

    /// Returns whether neither token of a grant can be used. Uses the refresh token.
    pub async fn is_dead(&self, tokens: &Tokens) -> Result<bool> {
        let access = self.use_token(&tokens.access).await?;
        let refresh = self.refresh(&tokens.refresh).await?;
        Ok(access == 401 && refresh.is_error("invalid_grant"))
    }

    async fn post(&self, endpoint: &str, form: String) -> Result<Reply> {
        let request = self.client.post(format!("{}/oauth/{endpoint}", self.base));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        Reply::read(request.body(format!("{form}&client_id={}", self.id))).await
    }
}

impl Reply {
    async fn read(request: reqwest::RequestBuilder) -> Result<Self> {
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? };
        Ok(Self { status, body })
    }

    /// Returns whether this is an error of RFC 6749 section 5.2 with this code.
    pub fn is_error(&self, code: &str) -> bool {
        self.status == 400 && self.body.get("error").is_some_and(|error| error == code)
    }

    /// Returns the code of the redirect.
    pub fn code(&self) -> Result<String> {
        ensure!(self.status == 200, "the authorization request returned {}: {}", self.status, self.body);
        let redirect = Url::parse(&string_at(&self.body, "/redirect")?)?;
        let code = redirect.query_pairs().find(|(name, _)| name == "code");
        Ok(code.with_context(|| format!("no code in {redirect}"))?.1.into_owned())
    }

    pub fn tokens(&self) -> Result<Tokens> {
        ensure!(self.status == 200, "the token endpoint returned {}: {}", self.status, self.body);
        let text = |pointer| string_at(&self.body, pointer);
        Ok(Tokens { access: text("/access_token")?, refresh: text("/refresh_token")? })
    }
}

/// Signs a user in, and returns the token of the session.
pub async fn start_session(client: &Client, base: &str, subject: &str) -> Result<String> {
    let request = client.post(format!("{base}/v1/auth/dev/login")).json(&json!({ "subject": subject }));
    let reply = Reply::read(request).await?;
    ensure!(reply.status == 200, "the sign-in returned {}: {}", reply.status, reply.body);
    string_at(&reply.body, "/token")
}
