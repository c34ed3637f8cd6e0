//! Sign-in at a code host, with one sandbox code host per test.

mod browser;
mod failures;
mod redirect;

use std::collections::BTreeMap;

use kernel::Secret;
use providers::CodeHostConfig;
use reqwest::Method;
use reqwest::header::HeaderValue;
use sandbox::{CodeHostServer, OAuthClient};
use serde_json::{Value, json};
use server::config::CodeHostLogin;
use url::Url;

use crate::support::{ApiResponse, App, client, time};

const BACK: &str = "https://app.example.org/signed-in";

struct Fixture {
    app: App,
    host: CodeHostServer,
}

/// A sign-in that a browser has started.
#[derive(Clone)]
struct StartedSignIn {
    authorize: Url,
    /// The name and the value of the cookie.
    cookie: (String, String),
    attributes: String,
}

/// Returns the OAuth client configuration for the code host.
fn registration(host: &CodeHostServer) -> CodeHostConfig {
    let OAuthClient { client_id, client_secret, authorize_url, token_url, user_url } = host.client();
    CodeHostConfig { client_id, client_secret: Secret::new(client_secret), authorize_url, token_url, user_url }
}

impl Fixture {
    async fn new() -> Self {
        Self::at("http://127.0.0.1:8080").await
    }

    async fn at(public_url: &str) -> Self {
        let host = CodeHostServer::start().await;
        let app = App::with(|config| {
            let redirects = format!("{BACK},http://localhost:3000").parse().unwrap();
            config.code_host = Some(CodeHostLogin { host: registration(&host), redirects });
            config.gateway.sign_ins.code_host = true;
            config.gateway.site.public_url = public_url.to_owned();
        })
        .await;
        Self { app, host }
    }

    async fn start(&self, redirect: &str) -> ApiResponse {
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("redirect", redirect).finish();
        self.app.anonymous().get(&format!("/v1/auth/codehost/start?{query}")).await
    }

    async fn start_sign_in(&self) -> StartedSignIn {
        StartedSignIn::of(&self.start(BACK).await)
    }

    /// Requests the authorization page of the code host. Returns the path of its redirect to the callback.
    async fn authorize(&self, started: &StartedSignIn) -> String {
        let response = client().get(started.authorize.clone()).send().await.unwrap();
        assert_eq!(response.status(), 302);
        let back = Url::parse(response.headers()["location"].to_str().unwrap()).unwrap();
        assert_eq!(back.path(), "/v1/auth/codehost/callback");
        format!("{}?{}", back.path(), back.query().unwrap())
    }

    /// Requests the callback with this cookie.
    async fn callback(&self, path: &str, cookie: Option<(&str, &str)>) -> ApiResponse {
        let header = cookie.map(|(name, value)| format!("theme=dark; {name}={value}"));
        self.callback_with(path, header.as_ref().map(|header| header.as_bytes()).as_slice()).await
    }

    /// Requests the callback with these `Cookie` headers.
    async fn callback_with(&self, path: &str, cookies: &[&[u8]]) -> ApiResponse {
        let cookies = cookies.iter().map(|cookie| HeaderValue::from_bytes(cookie).unwrap());
        let send = |request| cookies.fold(request, |it: reqwest::RequestBuilder, cookie| it.header("cookie", cookie));
        self.app.anonymous().send(Method::GET, path, send).await
    }

    /// Completes a sign-in in one browser.
    async fn sign_in(&self) -> ApiResponse {
        let started = self.start_sign_in().await;
        let path = self.authorize(&started).await;
        self.callback(&path, Some(started.cookie())).await
    }
}

impl StartedSignIn {
    fn of(response: &ApiResponse) -> Self {
        response.expect(302);
        let (cookie, attributes) = response.header("set-cookie").split_once("; ").unwrap();
        let (name, value) = cookie.split_once('=').unwrap();
        let authorize = Url::parse(response.header("location")).unwrap();
        Self { authorize, cookie: (name.to_owned(), value.to_owned()), attributes: attributes.to_owned() }
    }

    fn cookie(&self) -> (&str, &str) {
        (&self.cookie.0, &self.cookie.1)
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        self.authorize.query_pairs().into_owned().collect()
    }
}

/// Returns the target of the redirect and the parameters in its fragment.
fn redirect_target(response: &ApiResponse) -> (String, BTreeMap<String, String>) {
    response.expect(302);
    assert_eq!(response.header("cache-control"), "no-store");
    assert_eq!(response.header("referrer-policy"), "no-referrer");
    let (url, fragment) = response.header("location").split_once('#').unwrap();
    // Form decoding and URI component decoding give the same result.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~%=&".contains(c);
    assert!(fragment.chars().all(plain), "{fragment}");
    // Unreserved characters are not encoded (RFC 3986 section 2.3).
    assert!(["%2D", "%2E", "%5F", "%7E"].iter().all(|encoded| !fragment.contains(encoded)), "{fragment}");
    (url.to_owned(), url::form_urlencoded::parse(fragment.as_bytes()).into_owned().collect())
}

/// Returns the token of a successful sign-in.
fn token(response: &ApiResponse) -> String {
    redirect_target(response).1["token"].clone()
}

/// Returns the error code of a failed sign-in.
fn error(response: &ApiResponse) -> String {
    let (url, params) = redirect_target(response);
    assert_eq!(url, BACK);
    assert_eq!(params.keys().collect::<Vec<_>>(), ["error", "message"]);
    assert!(!params["message"].is_empty());
    params["error"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn start_redirects_to_the_code_host_and_sets_a_cookie() {
    let fixture = Fixture::new().await;
    let response = fixture.start(BACK).await;
    assert_eq!(response.header("cache-control"), "no-store");
    let started = StartedSignIn::of(&response);
    let config = fixture.host.client();
    assert_eq!(started.authorize.as_str().split('?').next(), Some(config.authorize_url.as_str()));
    let mut parameters = started.parameters();
    let (state, challenge) = (parameters.remove("state").unwrap(), parameters.remove("code_challenge").unwrap());
    let expected = [
        ("client_id", "svc-client"),
        ("code_challenge_method", "S256"),
        ("redirect_uri", "http://127.0.0.1:8080/v1/auth/codehost/callback"),
        ("response_type", "code"),
        ("scope", "read:user"),
    ];
    assert_eq!(parameters, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(challenge.len(), 43);
    let (name, value) = started.cookie();
    assert!(name.starts_with("svc_login_"), "{name}");
    // The cookie and the state do not reveal each other.
    assert!(!state.contains(value) && !value.contains(&state) && !started.authorize.as_str().contains(value));
    let attributes: Vec<&str> = started.attributes.split("; ").collect();
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"] {
        assert!(attributes.contains(&attribute), "{attributes:?}");
    }
    assert_eq!(attributes.len(), 4, "{attributes:?}");
    // Each sign-in has its own state, challenge and cookie.
    let (one, two) = (fixture.start_sign_in().await, fixture.start_sign_in().await);
    assert_ne!(one.parameters()["state"], two.parameters()["state"]);
    assert_ne!(one.parameters()["code_challenge"], two.parameters()["code_challenge"]);
    assert_ne!(one.cookie, two.cookie);
    let rows =
        fixture.app.db_rows("SELECT l.*, encode(state_hash, 'escape') AS escaped FROM identity.pending_logins l").await;
    assert!(!serde_json::to_string(&rows).unwrap().contains(&state));
}

#[tokio::test(flavor = "multi_thread")]
async fn cookie_is_host_only_and_secure_behind_https() {
    let fixture = Fixture::at("https://api.example.org").await;
    let started = fixture.start_sign_in().await;
    assert!(started.cookie.0.starts_with("__Host-svc_login_"), "{:?}", started.cookie);
    let attributes: Vec<&str> = started.attributes.split("; ").collect();
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600", "Secure"] {
        assert!(attributes.contains(&attribute), "{attributes:?}");
    }
    assert!(!started.attributes.contains("Domain"));
    assert_eq!(started.parameters()["redirect_uri"], "https://api.example.org/v1/auth/codehost/callback");
    let path = fixture.authorize(&started).await;
    let response = fixture.callback(&path, Some(started.cookie())).await;
    token(&response);
    assert!(response.header("set-cookie").starts_with(&format!("{}=; ", started.cookie.0)));
    assert!(response.header("set-cookie").contains("Secure"));
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_signs_the_user_in() {
    let fixture = Fixture::new().await;
    let response = fixture.sign_in().await;
    let (url, params) = redirect_target(&response);
    assert_eq!(url, BACK);
    assert_eq!(params.keys().collect::<Vec<_>>(), ["expiresAt", "subject", "token", "userId"]);
    assert!(params["token"].starts_with("svc_ses_"));
    assert_eq!(params["subject"], "1815");
    let expires_at = time(&json!(params["expiresAt"]));
    assert!(expires_at > kernel::ClockRng::system().now().plus_seconds(29 * 24 * 3600));
    // The response deletes the cookie.
    let cookie = response.header("set-cookie");
    assert!(cookie.starts_with("svc_login_") && cookie.contains("=; "), "{cookie}");
    assert!(cookie.contains("Max-Age=0") && cookie.contains("Path=/"), "{cookie}");

    let ada = fixture.app.with_token(&params["token"]);
    let me = ada.get("/v1/me").await.expect(200).clone();
    assert_eq!(
        (&me["id"], &me["provider"], &me["subject"], &me["name"], &me["email"]),
        (
            &json!(params["userId"]),
            &json!("codehost"),
            &json!("1815"),
            &json!("Ada Lovelace"),
            &json!("ada@code.example")
        )
    );
    assert_eq!(me["avatarUrl"], "https://avatars.code.example/u/1815?v=4");
    assert_eq!((&me["orgs"][0]["slug"], &me["orgs"][0]["personal"]), (&json!("ada"), &json!(true)));
    assert_eq!(ada.get("/v1/me/sessions").await.expect(200)["items"].as_array().unwrap().len(), 1);
    let pages = fixture.host.requests();
    assert_eq!(pages, ["GET /login/oauth/authorize", "POST /login/oauth/access_token", "GET /user"]);
    // The pending sign-in is deleted.
    assert_eq!(fixture.app.db_rows("SELECT * FROM identity.pending_logins").await, Vec::<Value>::new());
    let audit = serde_json::to_string(&fixture.app.db_rows("SELECT * FROM store.audit").await).unwrap();
    for secret in [params["token"].as_str(), "code_00000001", "gho_00000002", "ada@code.example"] {
        assert!(!audit.contains(secret), "{audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_is_identified_by_subject_not_by_login_name() {
    let fixture = Fixture::new().await;
    let id = |response: &ApiResponse| redirect_target(response).1["userId"].clone();
    let ada = id(&fixture.sign_in().await);
    fixture.host.sign_in_as(json!({ "login": "countess", "id": 1815, "name": "Ada King", "email": null }));
    let again = fixture.sign_in().await;
    assert_eq!(id(&again), ada);
    let me = fixture.app.with_token(&token(&again)).get("/v1/me").await.expect(200).clone();
    assert_eq!((&me["name"], me["orgs"].as_array().unwrap().len()), (&json!("Ada King"), 1));
    // Another user takes the old login name.
    fixture.host.sign_in_as(json!({ "login": "ada", "id": 1900, "name": "Ada Other" }));
    let other = fixture.sign_in().await;
    assert_ne!(id(&other), ada);
    let me = fixture.app.with_token(&token(&other)).get("/v1/me").await.expect(200).clone();
    assert_eq!(me["orgs"][0]["slug"], "ada-2");
    // A development login with the same subject is another user.
    assert_ne!(fixture.app.sign_in("1815").await.user_id, ada);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_host_login_is_disabled_without_a_code_host() {
    let app = App::with(|config| {
        config.code_host = None;
        config.gateway.sign_ins.code_host = false;
    })
    .await;
    for path in ["/v1/auth/codehost/start?redirect=http%3A%2F%2F127.0.0.1", "/v1/auth/codehost/callback?state=x"] {
        app.anonymous().get(path).await.expect_error(404, "not_found");
    }
}
