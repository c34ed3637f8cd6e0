//! Test fixtures: clients as third parties would implement them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::audit::Actor;
use kernel::{ClientId, ClockRng};
use oauth::{Clients, NewClient, SigningKeys};
use reqwest::Method;
use serde_json::{Value, json};
use store::Store;
use url::form_urlencoded;

use crate::process::Process;
use crate::support::{ApiResponse, App, Caller};

/// A code verifier and its challenge (RFC 7636, appendix B).
pub const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
pub const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

pub const REDIRECT_URI: &str = "https://app.example/callback";
pub const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The way in which a confidential client authenticates itself (RFC 6749 section 2.3.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Authentication {
    Basic,
    Post,
}

/// A registered client.
#[derive(Clone)]
pub struct Client {
    pub id: String,
    pub secret: Option<String>,
    pub authentication: Authentication,
    pub redirect_uri: String,
    pub endpoints: Caller,
}

/// The tokens of a response.
#[derive(Debug, Clone)]
pub struct Tokens {
    pub access: String,
    pub refresh: String,
    pub scope: String,
}

/// Returns a client to register: public, with all scopes and one redirect URI.
pub fn public() -> NewClient {
    NewClient {
        name: "Example app".to_owned(),
        redirect_uris: vec![REDIRECT_URI.to_owned()],
        scopes: None,
        confidential: false,
        device: false,
    }
}

/// Returns the store of an app's database, with its clock.
pub fn store(app: &App) -> Store {
    Store::new(&testkit::store_config(app.database.url()), app.clock.clock_rng()).unwrap()
}

pub fn operator() -> Actor {
    Actor::operator("test")
}

/// Returns the operator's service for clients.
pub fn clients(app: &App) -> Clients {
    Clients::new(store(app))
}

/// Returns the operator's service for signing keys.
pub fn signing_keys(app: &App) -> SigningKeys {
    SigningKeys::new(store(app))
}

/// Registers a client like the operator's command.
pub async fn register(app: &App, new: NewClient) -> Client {
    register_with(&clients(app), app.anonymous(), new).await
}

/// Registers a client of the server that runs as this process. Returns it with a signed-in user.
pub async fn register_at(process: &Process, new: NewClient) -> (Client, Caller) {
    let store = Store::new(&testkit::store_config(process.database.url()), ClockRng::system()).unwrap();
    let endpoints = Caller::at(&process.base).await;
    let session: Value = process.json("", "POST", "/v1/auth/dev/login", Some(json!({ "subject": "ada" }))).await;
    let text = |name: &str| session[name].as_str().unwrap();
    let mut user = endpoints.with_token(text("token"));
    text("userId").clone_into(&mut user.user_id);
    (register_with(&Clients::new(store), endpoints, new).await, user)
}

async fn register_with(clients: &Clients, endpoints: Caller, new: NewClient) -> Client {
    let redirect_uri = new.redirect_uris.first().cloned().unwrap_or_default();
    let created = clients.add(&operator(), new).await.unwrap();
    Client {
        id: created.id.to_string(),
        secret: created.secret.map(|secret| secret.reveal().to_owned()),
        authentication: Authentication::Basic,
        redirect_uri,
        endpoints,
    }
}

/// Returns a form body.
pub fn form(parameters: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish()
}

/// Sends a form.
pub async fn post_form(endpoints: &Caller, path: &str, body: String, authorization: Option<&str>) -> ApiResponse {
    let send = |request: reqwest::RequestBuilder| {
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
        match authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        }
    };
    endpoints.send(Method::POST, path, send).await
}

/// Returns the header `Authorization: Basic` with these credentials.
pub fn basic(id: &str, secret: &str) -> String {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let credentials = format!("{}:{}", encode(id), encode(secret));
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(credentials))
}

impl Client {
    /// Returns the same client with another server of the installation.
    pub fn at(&self, app: &App) -> Self {
        Self { endpoints: app.anonymous(), ..self.clone() }
    }

    pub fn id(&self) -> ClientId {
        self.id.parse().unwrap()
    }

    /// Sends a form to an endpoint, with the authentication of this client.
    pub async fn post(&self, path: &str, parameters: &[(&str, &str)]) -> ApiResponse {
        let mut parameters = parameters.to_vec();
        let mut authorization = None;
        match (&self.secret, self.authentication) {
            (None, _) => parameters.push(("client_id", &self.id)),
            (Some(secret), Authentication::Post) => {
                parameters.extend([("client_id", self.id.as_str()), ("client_secret", secret)]);
            }
            (Some(secret), Authentication::Basic) => authorization = Some(basic(&self.id, secret)),
        }
        post_form(&self.endpoints, path, form(&parameters), authorization.as_deref()).await
    }

    /// Returns the body of an authorization request. `change` overrides its parameters. A null removes a parameter.
    pub fn authorization_request(&self, change: &Value) -> Value {
        let mut body = json!({
            "response_type": "code", "client_id": self.id, "redirect_uri": self.redirect_uri,
            "code_challenge": CHALLENGE, "code_challenge_method": "S256",
        });
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        body
    }

    /// Sends an authorization request like the dashboard of this user.
    pub async fn authorize(&self, user: &Caller, change: Value) -> ApiResponse {
        user.post("/v1/oauth/authorize", self.authorization_request(&change)).await
    }

    /// Returns the parameters of the redirect.
    pub async fn redirect(&self, user: &Caller, change: Value) -> Vec<(String, String)> {
        let response = self.authorize(user, change).await;
        let redirect = response.expect(200)["redirect"].as_str().unwrap();
        assert!(redirect.starts_with(&self.redirect_uri), "{redirect}");
        url::Url::parse(redirect).unwrap().query_pairs().into_owned().collect()
    }

    /// Returns a code for all scopes of the client.
    pub async fn code(&self, user: &Caller) -> String {
        self.code_with(user, json!({})).await
    }

    /// Returns the code of an authorization request.
    pub async fn code_with(&self, user: &Caller, change: Value) -> String {
        parameter(&self.redirect(user, change).await, "code").unwrap()
    }

    pub async fn exchange(&self, code: &str) -> ApiResponse {
        self.exchange_with(code, &[]).await
    }

    /// Exchanges a code with other or additional parameters.
    pub async fn exchange_with(&self, code: &str, changed: &[(&str, &str)]) -> ApiResponse {
        let defaults = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.redirect_uri.as_str()),
            ("code_verifier", VERIFIER),
        ];
        let is_changed = |name: &str| changed.iter().any(|(changed, _)| *changed == name);
        let mut parameters: Vec<_> = defaults.into_iter().filter(|(name, _)| !is_changed(name)).collect();
        parameters.extend(changed);
        self.post("/oauth/token", &parameters).await
    }

    /// Runs the whole code flow.
    pub async fn sign_in(&self, user: &Caller) -> Tokens {
        self.sign_in_with(user, json!({})).await
    }

    pub async fn sign_in_with(&self, user: &Caller, change: Value) -> Tokens {
        Tokens::of(&self.exchange(&self.code_with(user, change).await).await)
    }

    pub async fn refresh(&self, token: &str) -> ApiResponse {
        self.refresh_with(token, &[]).await
    }

    pub async fn refresh_with(&self, token: &str, extra: &[(&str, &str)]) -> ApiResponse {
        let parameters = [&[("grant_type", "refresh_token"), ("refresh_token", token)], extra].concat();
        self.post("/oauth/token", &parameters).await
    }

    pub async fn revoke(&self, token: &str) -> ApiResponse {
        self.post("/oauth/revoke", &[("token", token)]).await
    }
}

impl Tokens {
    /// Returns the tokens of a successful response.
    #[track_caller]
    pub fn of(response: &ApiResponse) -> Self {
        let body = response.expect(200);
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        assert_eq!((&body["token_type"], &body["expires_in"]), (&json!("Bearer"), &json!(900)));
        assert_eq!((response.header("cache-control"), response.header("pragma")), ("no-store", "no-cache"));
        Self { access: text("access_token"), refresh: text("refresh_token"), scope: text("scope") }
    }

    /// Returns the claims of the access token without validating them.
    pub fn claims(&self) -> Value {
        part(&self.access, 1)
    }

    pub fn sid(&self) -> String {
        self.claims()["sid"].as_str().unwrap().to_owned()
    }
}

/// Returns the decoded header (0) or payload (1) of a JWT.
pub fn part(token: &str, index: usize) -> Value {
    let part = URL_SAFE_NO_PAD.decode(token.split('.').nth(index).unwrap()).unwrap();
    serde_json::from_slice(&part).unwrap()
}

/// Returns the value of a parameter of a redirect.
pub fn parameter(parameters: &[(String, String)], name: &str) -> Option<String> {
    parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

/// Asserts an error body of OAuth and its headers (RFC 6749 section 5.2).
#[track_caller]
pub fn expect_oauth_error(response: &ApiResponse, status: u16, error: &str) {
    assert_eq!((response.status, response.body["error"].as_str()), (status, Some(error)), "{response:?}");
    let names: Vec<_> = response.body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["error", "error_description"], "{response:?}");
    assert!(!response.body["error_description"].as_str().unwrap().is_empty(), "{response:?}");
    assert_eq!((response.header("cache-control"), response.header("pragma")), ("no-store", "no-cache"));
    assert_eq!(response.header("content-type"), "application/json");
}

/// Asserts that the API rejects the access token.
pub async fn expect_rejected(app: &App, token: &str) {
    let response = app.with_token(token).get("/v1/me").await;
    response.expect_error(401, "unauthenticated");
    assert_eq!(response.header("www-authenticate"), "Bearer error=\"invalid_token\"");
}

/// Returns the ids of a user's grants, as the listing shows them.
pub async fn grants(user: &Caller) -> Vec<String> {
    let listing = user.get("/v1/oauth/grants").await.expect(200).clone();
    listing["items"].as_array().unwrap().iter().map(|grant| grant["sid"].as_str().unwrap().to_owned()).collect()
}
