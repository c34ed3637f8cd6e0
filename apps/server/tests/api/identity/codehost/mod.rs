//! Signing in at the code host, from the first redirect to the last, with a code host of its own for each test.

mod browser;
mod failures;
mod redirect;

use std::collections::BTreeMap;

use kernel::Secret;
use providers::CodeHostConfig;
use reqwest::Method;
use sandbox::{CodeHostServer, OAuthClient};
use serde_json::{Value, json};
use server::config::CodeHostLogin;
use url::Url;

use crate::kit::{Answer, App, client, time};

const BACK: &str = "https://app.example.org/signed-in";

struct World {
    app: App,
    host: CodeHostServer,
}

/// A sign-in that a browser has begun.
#[derive(Clone)]
struct Begun {
    authorize: Url,
    /// Name and value.
    cookie: (String, String),
    attributes: String,
}

/// The code host as the server is configured to use it.
fn registration(host: &CodeHostServer) -> CodeHostConfig {
    let OAuthClient { client_id, client_secret, authorize_url, token_url, user_url } = host.client();
    CodeHostConfig { client_id, client_secret: Secret::new(client_secret), authorize_url, token_url, user_url }
}

impl World {
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

    async fn start(&self, redirect: &str) -> Answer {
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("redirect", redirect).finish();
        self.app.anyone().get(&format!("/v1/auth/codehost/start?{query}")).await
    }

    async fn begin(&self) -> Begun {
        Begun::of(&self.start(BACK).await)
    }

    /// The code host's page, in whosever browser: where it sends that, as a path of ours.
    async fn authorize(&self, begun: &Begun) -> String {
        let answer = client().get(begun.authorize.clone()).send().await.unwrap();
        assert_eq!(answer.status(), 302);
        let back = Url::parse(answer.headers()["location"].to_str().unwrap()).unwrap();
        assert_eq!(back.path(), "/v1/auth/codehost/callback");
        format!("{}?{}", back.path(), back.query().unwrap())
    }

    /// The callback, in a browser with this cookie.
    async fn callback(&self, path: &str, cookie: Option<(&str, &str)>) -> Answer {
        let send = |request: reqwest::RequestBuilder| match cookie {
            Some((name, value)) => request.header("cookie", format!("theme=dark; {name}={value}")),
            None => request,
        };
        self.app.anyone().send(Method::GET, path, send).await
    }

    /// All of it, in one browser.
    async fn sign_in(&self) -> Answer {
        let begun = self.begin().await;
        let path = self.authorize(&begun).await;
        self.callback(&path, Some(begun.cookie())).await
    }
}

impl Begun {
    fn of(answer: &Answer) -> Self {
        answer.expect(302);
        let (cookie, attributes) = answer.header("set-cookie").split_once("; ").unwrap();
        let (name, value) = cookie.split_once('=').unwrap();
        let authorize = Url::parse(answer.header("location")).unwrap();
        Self { authorize, cookie: (name.to_owned(), value.to_owned()), attributes: attributes.to_owned() }
    }

    fn cookie(&self) -> (&str, &str) {
        (&self.cookie.0, &self.cookie.1)
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        self.authorize.query_pairs().into_owned().collect()
    }
}

/// Where a browser is sent on, and what it is told in the fragment.
fn told(answer: &Answer) -> (String, BTreeMap<String, String>) {
    answer.expect(302);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("referrer-policy"), "no-referrer");
    let (place, fragment) = answer.header("location").split_once('#').unwrap();
    // Whatever reads it, form or component, reads the same.
    let plain = |c: char| c.is_ascii_alphanumeric() || "%=&".contains(c);
    assert!(fragment.chars().all(plain), "{fragment}");
    (place.to_owned(), url::form_urlencoded::parse(fragment.as_bytes()).into_owned().collect())
}

/// The token of a sign-in that went well.
fn token(answer: &Answer) -> String {
    told(answer).1["token"].clone()
}

/// The code of a sign-in that did not.
fn error(answer: &Answer) -> String {
    let (place, told) = told(answer);
    assert_eq!(place, BACK);
    assert_eq!(told.keys().collect::<Vec<_>>(), ["error", "message"]);
    assert!(!told["message"].is_empty());
    told["error"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_begins_at_the_code_host_with_a_cookie_of_this_browser() {
    let world = World::new().await;
    let answer = world.start(BACK).await;
    assert_eq!(answer.header("cache-control"), "no-store");
    let begun = Begun::of(&answer);
    let config = world.host.client();
    assert_eq!(begun.authorize.as_str().split('?').next(), Some(config.authorize_url.as_str()));
    let mut parameters = begun.parameters();
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
    let (name, value) = begun.cookie();
    assert!(name.starts_with("svc_login_"), "{name}");
    // Neither tells the other.
    assert!(!state.contains(value) && !value.contains(&state) && !begun.authorize.as_str().contains(value));
    let attributes: Vec<&str> = begun.attributes.split("; ").collect();
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"] {
        assert!(attributes.contains(&attribute), "{attributes:?}");
    }
    assert_eq!(attributes.len(), 4, "{attributes:?}");
    // Two begin in two ways.
    let (one, two) = (world.begin().await, world.begin().await);
    assert_ne!(one.parameters()["state"], two.parameters()["state"]);
    assert_ne!(one.parameters()["code_challenge"], two.parameters()["code_challenge"]);
    assert_ne!(one.cookie, two.cookie);
    let rows = world.app.db_rows("SELECT l.*, encode(state_hash, 'escape') AS escaped FROM identity.logins l").await;
    assert!(!serde_json::to_string(&rows).unwrap().contains(&state));
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_https_the_cookie_is_of_this_host_alone() {
    let world = World::at("https://api.example.org").await;
    let begun = world.begin().await;
    assert!(begun.cookie.0.starts_with("__Host-svc_login_"), "{:?}", begun.cookie);
    let attributes: Vec<&str> = begun.attributes.split("; ").collect();
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600", "Secure"] {
        assert!(attributes.contains(&attribute), "{attributes:?}");
    }
    assert!(!begun.attributes.contains("Domain"));
    assert_eq!(begun.parameters()["redirect_uri"], "https://api.example.org/v1/auth/codehost/callback");
    let path = world.authorize(&begun).await;
    let answer = world.callback(&path, Some(begun.cookie())).await;
    token(&answer);
    assert!(answer.header("set-cookie").starts_with(&format!("{}=; ", begun.cookie.0)));
    assert!(answer.header("set-cookie").contains("Secure"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_is_signed_in() {
    let world = World::new().await;
    let answer = world.sign_in().await;
    let (place, told) = told(&answer);
    assert_eq!(place, BACK);
    assert_eq!(told.keys().collect::<Vec<_>>(), ["expiresAt", "subject", "token", "userId"]);
    assert!(told["token"].starts_with("svc_ses_"));
    assert_eq!(told["subject"], "1815");
    let expires_at = time(&json!(told["expiresAt"]));
    assert!(expires_at > kernel::World::system().now().plus_seconds(29 * 24 * 3600));
    // The cookie has done its work.
    let forgotten = answer.header("set-cookie");
    assert!(forgotten.starts_with("svc_login_") && forgotten.contains("=; "), "{forgotten}");
    assert!(forgotten.contains("Max-Age=0") && forgotten.contains("Path=/"), "{forgotten}");

    let ada = world.app.with_token(&told["token"]);
    let me = ada.get("/v1/me").await.expect(200).clone();
    assert_eq!(
        (&me["id"], &me["provider"], &me["subject"], &me["name"], &me["email"]),
        (
            &json!(told["userId"]),
            &json!("codehost"),
            &json!("1815"),
            &json!("Ada Lovelace"),
            &json!("ada@code.example")
        )
    );
    assert_eq!(me["avatarUrl"], "https://avatars.code.example/u/1815?v=4");
    assert_eq!((&me["orgs"][0]["slug"], &me["orgs"][0]["personal"]), (&json!("ada"), &json!(true)));
    assert_eq!(ada.get("/v1/me/sessions").await.expect(200)["items"].as_array().unwrap().len(), 1);
    let pages = world.host.requested();
    assert_eq!(pages, ["GET /login/oauth/authorize", "POST /login/oauth/access_token", "GET /user"]);
    // Nothing of the sign-in is left.
    assert_eq!(world.app.db_rows("SELECT * FROM identity.logins").await, Vec::<Value>::new());
    let audit = serde_json::to_string(&world.app.db_rows("SELECT * FROM store.audit").await).unwrap();
    for secret in [told["token"].as_str(), "code_00000001", "gho_00000002", "ada@code.example"] {
        assert!(!audit.contains(secret), "{audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_person_is_the_same_user_whatever_they_are_called_by_then() {
    let world = World::new().await;
    let id = |answer: &Answer| told(answer).1["userId"].clone();
    let ada = id(&world.sign_in().await);
    world.host.sign_in_as(json!({ "login": "countess", "id": 1815, "name": "Ada King", "email": null }));
    let again = world.sign_in().await;
    assert_eq!(id(&again), ada);
    let me = world.app.with_token(&token(&again)).get("/v1/me").await.expect(200).clone();
    assert_eq!((&me["name"], me["orgs"].as_array().unwrap().len()), (&json!("Ada King"), 1));
    // The login that she gave up is somebody else's now.
    world.host.sign_in_as(json!({ "login": "ada", "id": 1900, "name": "Ada Other" }));
    let other = world.sign_in().await;
    assert_ne!(id(&other), ada);
    let me = world.app.with_token(&token(&other)).get("/v1/me").await.expect(200).clone();
    assert_eq!(me["orgs"][0]["slug"], "ada-2");
    // And a development login of the same subject is yet another person.
    assert_ne!(world.app.sign_in("1815").await.user_id, ada);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_code_host_there_is_no_such_login() {
    let app = App::with(|config| {
        config.code_host = None;
        config.gateway.sign_ins.code_host = false;
    })
    .await;
    for path in ["/v1/auth/codehost/start?redirect=http%3A%2F%2F127.0.0.1", "/v1/auth/codehost/callback?state=x"] {
        app.anyone().get(path).await.refused(404, "not_found");
    }
}
