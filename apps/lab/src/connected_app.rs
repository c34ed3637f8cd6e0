//! A connected app that calls the endpoints of the authorization server, for benchmarks and fault injection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kernel::audit::Actor;
use kernel::seal::Keys;
use kernel::{ClientId, ClockRng, Secret};
use oauth::{Clients, NewClient, OAuthError};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::{Value, json};
use store::Store;
use tokio::time::sleep;
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

/// The time for which a repeating app repeats a request.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before a repeating app repeats a command of an operator.
const COMMAND_DELAY: Duration = Duration::from_secs(1);

/// A sealing key that the server under test and the lab share.
pub struct SharedKey(String);

/// A registered public app.
#[derive(Clone)]
pub struct ConnectedApp {
    pub id: ClientId,
    client: Client,
    base: String,
    /// The number of repetitions, if the app repeats requests.
    repetitions: Option<Arc<AtomicUsize>>,
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
        let id = register(store).await?;
        Ok(Self { id, client: client.clone(), base: base.to_owned(), repetitions: None })
    }

    /// Registers another app, which calls the same server in the same way.
    pub async fn register_another(&self, store: &Store) -> Result<Self> {
        Ok(Self { id: register(store).await?, ..self.clone() })
    }

    /// Returns the same app, which repeats a request after a 503 with `Retry-After`, as its clients should. Any other
    /// response, and a 503 after [`REPEAT_TIMEOUT`], is the response to the request.
    pub fn repeating(&self) -> Self {
        Self { repetitions: Some(Arc::default()), ..self.clone() }
    }

    /// Returns the number of repetitions since the last call of this function.
    pub fn take_repetitions(&self) -> usize {
        self.repetitions.as_ref().map_or(0, |repetitions| repetitions.swap(0, Ordering::SeqCst))
    }

    /// Removes the app, as the command of an operator does. A repeating app repeats the command while the database is not
    /// available.
    pub async fn remove(&self, store: &Store) -> Result<()> {
        let (clients, start) = (Clients::new(store.clone()), Instant::now());
        loop {
            let removed = clients.remove(&Actor::operator("lab"), self.id).await;
            let is_unavailable = matches!(&removed, Err(OAuthError::Store(store::Error::Unavailable(_))));
            if !is_unavailable || !self.may_repeat(start) {
                removed?;
                return Ok(());
            }
            sleep(COMMAND_DELAY).await;
        }
    }

    /// Returns whether a request whose first attempt began at `start` is repeated, and counts the repetition.
    fn may_repeat(&self, start: Instant) -> bool {
        let repetitions = self.repetitions.as_ref().filter(|_| start.elapsed() < REPEAT_TIMEOUT);
        repetitions.map(|repetitions| repetitions.fetch_add(1, Ordering::SeqCst)).is_some()
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
        Reply::read(self.send(request).await?).await
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
        Ok(self.send(request).await?.status().as_u16())
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
        Reply::read(self.send(request.body(format!("{form}&client_id={}", self.id))).await?).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let start = Instant::now();
        while self.repetitions.is_some() {
            let attempt = request.try_clone().context("the body of a request is a stream")?;
            let response = attempt.send().await?;
            let Some(delay) = retry_after(&response).filter(|_| self.may_repeat(start)) else { return Ok(response) };
            sleep(delay).await;
        }
        Ok(request.send().await?)
    }
}

async fn register(store: &Store) -> Result<ClientId> {
    let new = NewClient {
        name: "lab".to_owned(),
        redirect_uris: vec![REDIRECT_URI.to_owned()],
        scopes: None,
        confidential: false,
        device: false,
    };
    Ok(Clients::new(store.clone()).add(&Actor::operator("lab"), new).await?.id)
}

/// Returns the delay that a 503 states.
fn retry_after(response: &Response) -> Option<Duration> {
    let is_unavailable = response.status() == StatusCode::SERVICE_UNAVAILABLE;
    let delay = response.headers().get(RETRY_AFTER).filter(|_| is_unavailable)?;
    Some(Duration::from_secs(delay.to_str().ok()?.parse().ok()?))
}

impl Reply {
    async fn read(response: Response) -> Result<Self> {
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
    let reply = Reply::read(request.send().await?).await?;
    ensure!(reply.status == 200, "the sign-in returned {}: {}", reply.status, reply.body);
    string_at(&reply.body, "/token")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::bench::server::client;

    const UNAVAILABLE: &str = "503 Service Unavailable\r\nretry-after: 0";

    /// Returns an app of a server that gives these responses, one after the other.
    async fn app(responses: &'static [&'static str]) -> ConnectedApp {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for response in responses {
                let (mut stream, _) = listener.accept().await.unwrap();
                let length = stream.read(&mut [0; 4096]).await.unwrap();
                assert!(length > 0);
                let response = format!("HTTP/1.1 {response}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        ConnectedApp { id: ClockRng::system().id(), client: client().unwrap(), base, repetitions: None }
    }

    #[tokio::test]
    async fn only_a_repeating_app_repeats_requests_and_only_after_a_503_with_retry_after() {
        let repeating = app(&[UNAVAILABLE, UNAVAILABLE, "401 Unauthorized"]).await.repeating();
        assert_eq!(repeating.use_token("token").await.unwrap(), 401);
        assert_eq!((repeating.take_repetitions(), repeating.take_repetitions()), (2, 0));
        let without_delay = app(&["503 Service Unavailable"]).await.repeating();
        assert_eq!((without_delay.use_token("token").await.unwrap(), without_delay.take_repetitions()), (503, 0));
        assert_eq!(app(&[UNAVAILABLE]).await.use_token("token").await.unwrap(), 503);
    }
}
