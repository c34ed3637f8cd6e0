//! A third-party app that signs its users in with the service, through OAuth's code flow with PKCE. It knows only the
//! address of the service and its own registration.

mod page;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::header::HOST;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::api::{Api, ApiError};
use crate::http::{Request, Response, is_within};
use crate::sessions::{Sessions, random_text};

/// The registration of the app.
#[derive(Debug, Clone)]
pub struct AppClient {
    pub client_id: String,
    /// The client secret. `None` for a public client.
    pub client_secret: Option<String>,
}

/// The app.
#[derive(Debug)]
pub(crate) struct DemoApp {
    api: Api,
    client: Option<AppClient>,
    /// The address at which browsers reach the app.
    base: String,
    /// The redirect URI.
    callback: String,
    /// The sign-ins in progress.
    pending: Sessions<Pending>,
    /// The signed-in users. The lock prevents that two requests use the same refresh token, because the second use
    /// would end the grant.
    users: Sessions<Arc<Mutex<Tokens>>>,
}

/// A sign-in in progress.
#[derive(Debug, Clone)]
struct Pending {
    state: String,
    verifier: String,
    metadata: Value,
}

/// The tokens of a user.
#[derive(Debug, Clone)]
struct Tokens {
    metadata: Value,
    response: Value,
    /// The number of refreshes so far.
    refreshes: usize,
}

impl DemoApp {
    /// Creates the app. `base` is the address at which browsers reach the app.
    pub fn new(api: Api, client: Option<AppClient>, base: &str) -> Self {
        let callback = format!("{base}/app/callback");
        let (pending, users) = (Sessions::new("demo_sign_in"), Sessions::new("demo_user"));
        Self { api, client, base: base.to_owned(), callback, pending, users }
    }

    /// Returns whether a request is for the app.
    pub fn serves(path: &str) -> bool {
        is_within(path, "/app")
    }

    pub async fn respond(&self, request: &Request) -> Option<Response> {
        let Some(client) = &self.client else {
            return (request.path == "/app").then(page::not_registered);
        };
        let result = match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/app") => Ok(self.home(request).await),
            ("POST", "/app/sign-in") => self.sign_in(client).await,
            ("GET", "/app/callback") => self.callback(client, request).await,
            ("POST", "/app/refresh") => self.refresh(client, request).await,
            ("POST", "/app/revoke") => self.revoke(client, request).await,
            _ => return None,
        };
        Some(result.unwrap_or_else(|error| page::fault(&error.to_string())))
    }

    async fn home(&self, request: &Request) -> Response {
        // Use only the registered host name. A browser would not send a cookie of another host name to the redirect
        // URI.
        if self.base.split_once("://").map(|(_, host)| host) != Some(request.header(HOST)) {
            return Response::redirect(format!("{}/app", self.base));
        }
        match self.users.get(request) {
            None => page::signed_out(&self.api.base),
            Some(tokens) => {
                let tokens = tokens.lock().await.clone();
                let access_token = text(&tokens.response, "access_token");
                let me = self.api.get("/v1/me", Some(access_token)).await;
                page::signed_in(&tokens.response, &claims(access_token), tokens.refreshes, &me)
            }
        }
    }

    /// Redirects the browser to the authorization endpoint (RFC 6749 section 4.1.1).
    async fn sign_in(&self, client: &AppClient) -> Result<Response, ApiError> {
        let metadata = self.api.get("/.well-known/oauth-authorization-server", None).await?;
        // RFC 8414 section 3.3 requires this check.
        if text(&metadata, "issuer") != self.api.base {
            return Err(ApiError(format!("The metadata is of another issuer than {}", self.api.base)));
        }
        let (state, verifier) = (random_text(), random_text());
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let mut url = url::Url::parse(text(&metadata, "authorization_endpoint"))
            .map_err(|error| ApiError(format!("The metadata has no authorization endpoint: {error}")))?;
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &client.client_id),
            ("redirect_uri", &self.callback),
            ("scope", "account:read org:read project:read"),
            ("state", &state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let cookie = self.pending.insert(Pending { state, verifier, metadata });
        Ok(Response { cookie: Some(cookie), ..Response::redirect(url) })
    }

    /// Receives the authorization response, and exchanges its code.
    async fn callback(&self, client: &AppClient, request: &Request) -> Result<Response, ApiError> {
        let refused = |reason: &str| ApiError(format!("The sign-in failed: {reason}"));
        let not_started = || refused("this browser did not start it");
        // A link of another site has a wrong state, and must not end the sign-in in progress.
        if request.parameter("state") != self.pending.get(request).ok_or_else(not_started)?.state {
            return Err(refused("the state is that of another sign-in"));
        }
        let pending = self.pending.remove(request).ok_or_else(not_started)?;
        // RFC 9207 section 2.4 requires this check.
        if request.parameter("iss") != text(&pending.metadata, "issuer") {
            return Err(refused("the response is of another issuer"));
        }
        if !request.parameter("error").is_empty() {
            let (error, description) = (request.parameter("error"), request.parameter("error_description"));
            return Err(refused(&format!("{description} ({error})")));
        }
        // The new tokens replace those of this browser, so end the grant of the old tokens first.
        self.revoke(client, request).await?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", request.parameter("code")),
            ("redirect_uri", &self.callback),
            ("code_verifier", &pending.verifier),
        ];
        let response = self.post(client, text(&pending.metadata, "token_endpoint"), &form).await?;
        let tokens = Tokens { metadata: pending.metadata, response, refreshes: 0 };
        let cookie = self.users.insert(Arc::new(Mutex::new(tokens)));
        Ok(Response { cookie: Some(cookie), ..Response::redirect("/app") })
    }

    async fn refresh(&self, client: &AppClient, request: &Request) -> Result<Response, ApiError> {
        let Some(tokens) = self.users.get(request) else { return Ok(Response::redirect("/app")) };
        let mut tokens = tokens.lock().await;
        if self.users.get(request).is_none() {
            return Ok(Response::redirect("/app"));
        }
        let refresh_token = text(&tokens.response, "refresh_token");
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        tokens.response = self.post(client, text(&tokens.metadata, "token_endpoint"), &form).await?;
        tokens.refreshes += 1;
        Ok(Response::redirect("/app"))
    }

    /// Signs the user out by ending the grant. If that fails, the user stays signed in and can try again.
    async fn revoke(&self, client: &AppClient, request: &Request) -> Result<Response, ApiError> {
        if let Some(tokens) = self.users.get(request) {
            let tokens = tokens.lock().await;
            let form = [("token", text(&tokens.response, "refresh_token"))];
            self.post(client, text(&tokens.metadata, "revocation_endpoint"), &form).await?;
            self.users.remove(request);
        }
        Ok(Response::redirect("/app"))
    }

    /// Sends a form with the authentication of the client.
    async fn post(&self, client: &AppClient, url: &str, form: &[(&str, &str)]) -> Result<Value, ApiError> {
        let mut form = form.to_vec();
        form.push(("client_id", &client.client_id));
        form.extend(client.client_secret.as_deref().map(|secret| ("client_secret", secret)));
        self.api.post_form(url, &form).await
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Returns the claims of a JWT. Does not verify it, because the app only shows the claims.
fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap_or_default();
    let bytes = URL_SAFE_NO_PAD.decode(payload).or_else(|_| STANDARD.decode(payload)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
