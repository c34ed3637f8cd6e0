//! The steps of a person on the sandbox's pages: the app of a third party, the pages that replace the dashboard, and the
//! model-lending service.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use sandbox::config::Config;
use sandbox::{AppClient, LENDING_PATH, LENDING_SECRET, Sandbox};
use serde_json::{Value, json};
use server::config::LendingConfig;
use testkit::reserved_address;
use tokio::task::JoinHandle;
use url::{Url, form_urlencoded};
use webhooks::SigningKey;

use super::kit::{grants, public, register};
use crate::convergence::nodes::TestNode;
use crate::support::{App, Caller, eventually, site};

/// The hostname of a project of Ada.
const SITE: &str = "site-ada.localhost";

/// A response with the final address after redirects.
struct Page {
    url: Url,
    status: u16,
    text: String,
}

impl Page {
    fn shows(&self, text: &str) -> &Self {
        assert!(self.text.contains(text), "{}: no {text:?} in {}", self.url, self.text);
        self
    }
}

fn form_body(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    request.header("content-type", "application/x-www-form-urlencoded").body(body)
}

/// A browser that keeps cookies and follows redirects.
struct Browser {
    client: Client,
    cookies: BTreeMap<String, String>,
    base: String,
}

impl Browser {
    /// `edge` is the address of the node that serves `SITE`.
    fn new(base: &str, edge: SocketAddr) -> Self {
        let client = Client::builder().redirect(Policy::none()).no_proxy().resolve(SITE, edge).build().unwrap();
        Self { client, cookies: BTreeMap::new(), base: base.to_owned() }
    }

    async fn get(&mut self, path: &str) -> Page {
        self.open(Method::GET, &format!("{}{path}", self.base), None, "").await
    }

    /// Submits a form of a page of the sandbox.
    async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        let origin = self.base.clone();
        self.open(Method::POST, &format!("{origin}{path}"), Some(fields), &origin).await
    }

    async fn open(&mut self, method: Method, url: &str, form: Option<&[(&str, &str)]>, origin: &str) -> Page {
        let (mut method, mut form) = (method, form);
        let mut url = Url::parse(url).unwrap();
        for _ in 0..10 {
            let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mut request = self.client.request(method.clone(), url.clone()).header("cookie", cookies.join("; "));
            if let Some(fields) = form {
                request = form_body(request, fields).header("origin", origin);
            }
            let response = request.send().await.unwrap();
            for cookie in response.headers().get_all("set-cookie") {
                let (name, value) = cookie.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
            let Some(location) = response.headers().get("location") else {
                return Page { url, status: response.status().as_u16(), text: response.text().await.unwrap() };
            };
            (url, method, form) = (url.join(location.to_str().unwrap()).unwrap(), Method::GET, None);
        }
        panic!("too many redirects: {url}");
    }

    /// Signs Ada in at the app, up to the decision. Returns the page of the decision.
    async fn start_sign_in(&mut self) -> Page {
        let asked = self.submit("/app/sign-in", &[]).await;
        let next = format!("{}?{}", asked.url.path(), asked.url.query().unwrap());
        self.submit("/oauth/sign-in", &[("subject", "ada"), ("next", &next)]).await
    }

    async fn decide(&mut self, page: &Page, decision: &str) -> Page {
        let action = format!("{}?{}", page.url.path(), page.url.query().unwrap());
        self.submit(&action, &[("decision", decision)]).await
    }
}

struct Kit {
    app: App,
    ada: Caller,
    /// The registration of the sandbox's app.
    client_id: String,
    /// The address for a node.
    edge: SocketAddr,
    browser: Browser,
    sandbox: JoinHandle<()>,
}

impl Kit {
    /// Starts a server, and the sandbox with an app that is registered there.
    async fn start() -> Self {
        Self::with_api_url(None).await
    }

    /// Like `start`. `api_url` is another address at which the app accesses the server.
    async fn with_api_url(api_url: Option<&str>) -> Self {
        let (api, web, edge) = (reserved_address(), reserved_address(), reserved_address());
        let (base, pages) = (format!("http://{api}"), format!("http://{web}"));
        let app = App::with(|config| {
            config.listen = api;
            config.site_url = format!("http://{{hostname}}:{}", edge.port()).parse().unwrap();
            config.gateway.site.public_url.clone_from(&base);
            config.gateway.site.dashboard_url.clone_from(&pages);
            let oauth = config.oauth.as_mut().unwrap();
            oauth.issuer.clone_from(&base);
            oauth.audience.clone_from(&base);
            oauth.device_verification_uri = Some(format!("{pages}/oauth/device"));
            let url = format!("{pages}{LENDING_PATH}").parse().unwrap();
            config.lending = Some(LendingConfig { url, key: SigningKey::parse(LENDING_SECRET).unwrap() });
        })
        .await;
        let mut registration = public();
        registration.device = true;
        registration.redirect_uris = vec![format!("{pages}/app/callback")];
        let client_id = register(&app, registration).await.id;
        let free = "127.0.0.1:0".parse().unwrap();
        let config = Config {
            listen: web,
            url: None,
            smtp_listen: free,
            sns_listen: free,
            mx: free,
            dns_listen: free,
            dns_nameserver: None,
            s3_listen: free,
            s3_dir: None,
            api_url: api_url.map_or(base, str::to_owned),
            app: Some(AppClient { client_id: client_id.clone(), client_secret: None }),
        };
        let sandbox = tokio::spawn(Sandbox::start(&config).await.unwrap().run());
        let ada = app.sign_in("ada").await;
        Self { app, ada, client_id, edge, browser: Browser::new(&pages, edge), sandbox }
    }

    async fn grants(&self) -> Vec<String> {
        grants(&self.ada).await
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        self.sandbox.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn person_signs_in_refreshes_and_revokes() {
    let mut kit = Kit::start().await;
    // The app redirects to its registered host name, because a browser would not send the cookies of another name to
    // the redirect URI.
    let other_name = kit.browser.base.replace("127.0.0.1", "localhost");
    let home = kit.browser.open(Method::GET, &format!("{other_name}/app"), None, "").await;
    assert_eq!(home.shows("Sign in with this platform").url.as_str(), format!("{}/app", kit.browser.base));
    let asked = kit.browser.start_sign_in().await;
    asked.shows("Approve").shows("account:read").shows("127.0.0.1");
    let signed_in = kit.browser.decide(&asked, "approve").await;
    signed_in.shows("Refreshes: 0").shows(&kit.ada.user_id).shows("access_token");
    assert_eq!(signed_in.url.path(), "/app");
    let granted = kit.grants().await;
    assert_eq!(granted.len(), 1);
    // Concurrent clicks are serialized. None of them reuses a refresh token, which would end the grant.
    let (first, second) = tokio::join!(
        kit.browser.client.post(format!("{}/app/refresh", kit.browser.base)).header("cookie", user_cookie(&kit)).send(),
        kit.browser.client.post(format!("{}/app/refresh", kit.browser.base)).header("cookie", user_cookie(&kit)).send(),
    );
    assert_eq!((first.unwrap().status().as_u16(), second.unwrap().status().as_u16()), (302, 302));
    kit.browser.get("/app").await.shows("Refreshes: 2").shows(&kit.ada.user_id);
    assert_eq!(kit.grants().await.len(), 1);
    kit.browser.submit("/app/revoke", &[]).await.shows("Sign in with this platform");
    assert_eq!(kit.grants().await, Vec::<String>::new());
    let sid = &granted[0];
    eventually("the lending service shows the grant", async || {
        let page = reqwest::get(format!("{}/lending", kit.browser.base)).await.unwrap().text().await.unwrap();
        page.contains(sid.as_str()).then_some(())
    })
    .await;
}

fn user_cookie(kit: &Kit) -> String {
    format!("demo_user={}", kit.browser.cookies["demo_user"])
}

#[tokio::test(flavor = "multi_thread")]
async fn denial_and_forged_responses_sign_nobody_in() {
    let mut kit = Kit::start().await;
    let asked = kit.browser.start_sign_in().await;
    kit.browser.decide(&asked, "deny").await.shows("access_denied");
    assert_eq!(kit.grants().await, Vec::<String>::new());
    // This browser did not request this response.
    kit.browser.get("/app/callback?code=x&state=y").await.shows("this browser did not start it");
    kit.browser.submit("/app/sign-in", &[]).await;
    kit.browser.get("/app/callback?code=x&state=y").await.shows("the state is that of another sign-in");
    // The response is from another issuer, or names none (RFC 9207).
    for iss in ["", "&iss=", "&iss=https%3A%2F%2Fevil.example"] {
        let asked = kit.browser.submit("/app/sign-in", &[]).await;
        let state = asked.url.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
        let forged = format!("/app/callback?code=x&state={state}{iss}");
        kit.browser.get(&forged).await.shows("the response is of another issuer");
        // The sign-in has ended.
        kit.browser.get(&forged).await.shows("this browser did not start it");
    }
    kit.browser.get("/app").await.shows("Sign in with this platform");
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_another_site_is_refused() {
    let mut kit = Kit::start().await;
    let asked = kit.browser.start_sign_in().await;
    for path in
        ["/oauth/authorize", "/oauth/device", "/oauth/sign-in", "/app/sign-in", "/app/revoke", "/lending", "/dns"]
    {
        let url = format!("{}{path}?{}", kit.browser.base, asked.url.query().unwrap());
        for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
            let page = kit.browser.open(Method::POST, &url, Some(&[("decision", "approve")]), origin).await;
            assert_eq!(page.status, 403, "{path} {origin}");
        }
    }
    assert_eq!(kit.grants().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn app_refuses_metadata_of_another_issuer() {
    let mut kit = Kit::with_api_url(Some("http://localhost:1")).await;
    kit.browser.submit("/app/sign-in", &[]).await.shows("The service did not respond");
    // With another host name, the server counts as another issuer.
    let name = kit.app.base.replace("127.0.0.1", "localhost");
    let mut kit = Kit::with_api_url(Some(&name)).await;
    kit.browser.submit("/app/sign-in", &[]).await.shows("The metadata is of another issuer");
}

#[tokio::test(flavor = "multi_thread")]
async fn device_is_approved_on_the_page() {
    let mut kit = Kit::start().await;
    let metadata: Value = reqwest::get(format!("{}/.well-known/oauth-authorization-server", kit.app.base))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let client = kit.browser.client.clone();
    let post = |endpoint: &Value, form: Vec<(&'static str, &str)>| {
        let request = form_body(client.post(endpoint.as_str().unwrap()), &form);
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    };
    let form = vec![("client_id", kit.client_id.as_str()), ("scope", "account:read")];
    let device = post(&metadata["device_authorization_endpoint"], form).await;
    let path = device["verification_uri_complete"].as_str().unwrap().strip_prefix(&kit.browser.base).unwrap();
    kit.browser.get(path).await.shows("Sign in");
    let shown = kit.browser.submit("/oauth/sign-in", &[("subject", "ada"), ("next", path)]).await;
    let code = device["user_code"].as_str().unwrap();
    shown.shows(code).shows("account:read");
    kit.browser
        .submit("/oauth/device", &[("user_code", code), ("decision", "approve")])
        .await
        .shows("The device is connected.");
    let form = vec![
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("device_code", device["device_code"].as_str().unwrap()),
        ("client_id", kit.client_id.as_str()),
    ];
    let tokens = post(&metadata["token_endpoint"], form).await;
    kit.app.with_token(tokens["access_token"].as_str().unwrap()).get("/v1/me").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_signs_in_again_after_the_session_has_ended() {
    let mut kit = Kit::start().await;
    let asked = kit.browser.start_sign_in().await;
    asked.shows("Approve");
    let sessions = kit.ada.get("/v1/me/sessions").await.expect(200)["items"].clone();
    for session in sessions.as_array().unwrap().iter().filter(|session| session["current"] == false) {
        kit.ada.delete(&format!("/v1/me/sessions/{}", session["id"].as_str().unwrap())).await.expect(204);
    }
    kit.browser.decide(&asked, "approve").await.shows("status 401").shows("Use another user");
    let next = format!("{}?{}", asked.url.path(), asked.url.query().unwrap());
    kit.browser.get(&next).await.shows("status 401").shows("Use another user");
    kit.browser.submit("/oauth/sign-out", &[("next", &next)]).await.shows("development login");
    let asked = kit.browser.submit("/oauth/sign-in", &[("subject", "ada"), ("next", &next)]).await;
    kit.browser.decide(&asked, "approve").await.shows("Refreshes: 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_sign_in_at_a_protected_site() {
    let mut kit = Kit::start().await;
    let node = TestNode::listening(&kit.app, &kit.edge.to_string()).await;
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    kit.ada.upload("/v1/orgs/ada/projects/site/deployments", site("<p>inside</p>")).await.expect(201);
    node.wait_for_page(SITE, "<p>inside</p>").await;
    kit.ada.put("/v1/orgs/ada/projects/site/access", json!({ "mode": "org" })).await.expect(200);
    node.wait_for_status(SITE, 302).await;

    let page = format!("http://{SITE}:{}/?a=b", kit.edge.port());
    let asked = kit.browser.open(Method::GET, &page, None, "").await;
    asked.shows("Sign in with the development login");
    let next = format!("{}?{}", asked.url.path(), asked.url.query().unwrap());
    let field = format!(r#"name=next value="{}""#, next.replace('&', "&amp;"));
    asked.shows(&field);
    let refused = kit.browser.submit("/oauth/sign-in", &[("subject", "eve"), ("next", &next)]).await;
    refused.shows("(forbidden)").shows("Use another user").shows(&field);
    kit.browser.submit("/oauth/sign-out", &[("next", &next)]).await.shows("Sign in with the development login");
    let admitted = kit.browser.submit("/oauth/sign-in", &[("subject", "ada"), ("next", &next)]).await;
    assert_eq!(admitted.shows("<p>inside</p>").url.as_str(), page);
}

/// A new sign-in replaces the tokens, so it ends their grant. A denied sign-in does not.
#[tokio::test(flavor = "multi_thread")]
async fn new_sign_in_ends_the_previous_grant() {
    let mut kit = Kit::start().await;
    let asked = kit.browser.start_sign_in().await;
    kit.browser.decide(&asked, "approve").await.shows("Refreshes: 0");
    let first = kit.grants().await;
    assert_eq!(first.len(), 1);
    let asked = kit.browser.submit("/app/sign-in", &[]).await;
    kit.browser.decide(&asked, "deny").await.shows("access_denied");
    assert_eq!(kit.grants().await, first);
    kit.browser.get("/app").await.shows("Refreshes: 0");
    let asked = kit.browser.submit("/app/sign-in", &[]).await;
    kit.browser.decide(&asked, "approve").await.shows("Refreshes: 0");
    let second = kit.grants().await;
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
}

/// An outage of the lending service delays only the message to it.
#[tokio::test(flavor = "multi_thread")]
async fn revocation_does_not_wait_for_the_lending_service() {
    let mut kit = Kit::start().await;
    for fault in ["unavailable", "html", "hang", "close"] {
        kit.browser.submit("/lending", &[("fault", fault)]).await.shows(fault);
        let asked = kit.browser.start_sign_in().await;
        kit.browser.decide(&asked, "approve").await.shows("Refreshes: 0");
        let sid = kit.grants().await.remove(0);
        kit.browser.submit("/app/revoke", &[]).await.shows("Sign in with this platform");
        assert_eq!(kit.grants().await, Vec::<String>::new(), "{fault}");
        assert!(!kit.browser.get("/lending").await.text.contains(&sid), "{fault}");
        kit.browser.submit("/lending", &[("fault", "none")]).await;
        eventually("the message arrives", async || {
            kit.app.db_execute("UPDATE store.outbox SET next_attempt_at = created_at").await.unwrap();
            kit.app.db_execute("NOTIFY outbox, 'oauth.revocation'").await.unwrap();
            kit.browser.get("/lending").await.text.contains(&sid).then_some(())
        })
        .await;
    }
}
