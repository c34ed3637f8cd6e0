//! Sign-in of an app's own users.

use sandbox::IdentityProvider;
use serde_json::{Value, json};

use super::tls::TlsProxy;
use super::{Browser, ELEMENT};
use crate::app_sign_in::Platform;
use crate::support::{eventually, site};

const SESSION: &str = "__Host-svc_auth";
const SIGNED_IN: &str = "You are signed in as";
/// The Tab key and the Enter key (W3C WebDriver, "Keyboard actions").
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// A browser, and the members' page behind a proxy that terminates TLS.
struct Fixture {
    browser: Browser,
    platform: Platform,
    origin: String,
    _proxy: TlsProxy,
}

impl Fixture {
    async fn start() -> Option<Self> {
        let browser = Browser::start().await?;
        let platform = Platform::with_club().await?;
        let proxy = TlsProxy::start(platform.port, &platform.node.edge).await;
        Some(Self { browser, origin: platform.origin("club"), platform, _proxy: proxy })
    }

    async fn open(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.origin)).await;
    }

    /// Follows the link of the sign-in page to a provider.
    async fn continue_with(&self, provider: &str) {
        self.browser.click(&format!("a[href^='/__svc/auth/login/{provider}']")).await;
        self.browser.wait_for_text("Deny access").await;
    }

    async fn choose(&self, person: &str) {
        self.browser.click(&format!("button[value='{person}']")).await;
    }

    /// Signs in from the page of members.
    async fn sign_in(&self, provider: &str, person: &str) {
        self.open("/members").await;
        self.continue_with(provider).await;
        self.choose(person).await;
        assert_eq!(self.browser.wait_for_text(SIGNED_IN).await, format!("{}/members", self.origin));
    }

    /// Returns the user of the session in this browser.
    async fn user(&self) -> Value {
        self.open("/__svc/auth/session").await;
        let text = self.browser.run("return document.body.innerText").await;
        serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap()["user"].clone()
    }

    async fn has_cookie(&self, name: &str) -> bool {
        self.browser.cookies().await.iter().any(|(known, _)| known == name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_sign_in_with_each_provider() {
    let Some(it) = Fixture::start().await else { return };
    let browser = &it.browser;
    for provider in IdentityProvider::ALL {
        it.open("/").await;
        browser.click("a[href^='/__svc/auth/login']").await;
        browser.wait_for_text("Choose how you want to sign in.").await;
        it.continue_with(provider.as_str()).await;
        it.choose("ada").await;
        browser.wait_for_text(SIGNED_IN).await;
        assert!(it.has_cookie(SESSION).await);
        // Scripts cannot read the cookie, and no flow remains.
        assert_eq!(browser.run("return document.cookie").await, "");
        assert_eq!(browser.cookies().await.len(), 1);
        browser.click("form[action='/__svc/auth/logout'] button").await;
        browser.wait_for_text("Only members see the members.").await;
        assert!(!it.has_cookie(SESSION).await);
    }
    visitor_uses_the_keyboard(&it).await;
    visitor_denies_and_a_provider_fails(&it).await;
    two_tabs_sign_in(&it).await;
    visitor_goes_back(&it).await;
}

/// Every link of the page is reached with the Tab key, in the order of the page.
async fn visitor_uses_the_keyboard(it: &Fixture) {
    let focused = "return document.activeElement.getAttribute('href') || ''";
    it.open("/members").await;
    it.browser.wait_for_text("Choose how you want to sign in.").await;
    for provider in ["codehost", "webaccount"] {
        let element = it.browser.element(":focus, body").await;
        it.browser.call(&format!("/element/{element}/value"), json!({ "text": TAB })).await;
        let href = it.browser.run(focused).await;
        assert!(href.as_str().unwrap().starts_with(&format!("/__svc/auth/login/{provider}")), "{href}");
    }
    let element = it.browser.element(":focus").await;
    it.browser.call(&format!("/element/{element}/value"), json!({ "text": ENTER })).await;
    it.browser.wait_for_text("Deny access").await;
}

async fn visitor_denies_and_a_provider_fails(it: &Fixture) {
    it.open("/members").await;
    it.continue_with("webaccount").await;
    it.choose("").await;
    it.browser.wait_for_text("You are not signed in").await;
    assert_eq!(it.user().await, Value::Null);
    it.open("/members").await;
    it.continue_with("webaccount").await;
    it.browser.run("document.querySelector('select').value = 'token: 500'").await;
    it.choose("ada").await;
    it.browser.wait_for_text("You could not be signed in").await;
    // The page leads back to the sign-in, and from there to the page that the visitor wanted.
    it.browser.click("main a").await;
    it.continue_with("webaccount").await;
    it.choose("ada").await;
    assert_eq!(it.browser.wait_for_text(SIGNED_IN).await, format!("{}/members", it.origin));
    it.browser.click("form[action='/__svc/auth/logout'] button").await;
    it.browser.wait_for_text("Only members").await;
}

async fn two_tabs_sign_in(it: &Fixture) {
    let browser = &it.browser;
    let (first, second) = (browser.get("/window").await.as_str().unwrap().to_owned(), browser.new_tab().await);
    it.open("/members").await;
    it.continue_with("codehost").await;
    browser.switch_to(&second).await;
    it.open("/__svc/auth/login?next=/").await;
    it.continue_with("messenger").await;
    it.choose("grace").await;
    browser.wait_for_text("Hello, Grace").await;
    browser.switch_to(&first).await;
    it.choose("ada").await;
    browser.wait_for_text(SIGNED_IN).await;
    assert_eq!(it.user().await["name"], "Ada Lovelace");
    // The last sign-in is that of the browser, in both tabs.
    browser.switch_to(&second).await;
    it.open("/").await;
    browser.wait_for_text("Hello, Ada Lovelace").await;
    browser.switch_to(&first).await;
}

/// After a sign-in, the back button leads to the page of the provider, which can be submitted again.
async fn visitor_goes_back(it: &Fixture) {
    it.open("/").await;
    it.browser.click("form[action='/__svc/auth/logout'] button").await;
    it.browser.wait_for_text("Only members").await;
    it.sign_in("webaccount", "ada").await;
    it.browser.call("/back", json!({})).await;
    it.browser.wait_for_text("Deny access").await;
    it.choose("grace").await;
    it.browser.wait_for_text("This sign-in has expired").await;
    assert_eq!(it.user().await["name"], "Ada Lovelace");
    it.browser.call("/back", json!({})).await;
    it.browser.wait_for_text("This sign-in has expired").await;
    it.browser.click("main a").await;
    it.continue_with("webaccount").await;
    it.choose("grace").await;
    it.browser.wait_for_text("Grace Hopper").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn site_at_a_sibling_host_cannot_sign_in_or_out() {
    let Some(it) = Fixture::start().await else { return };
    it.platform.call("POST", "/v1/orgs/ada/projects", Some(json!({ "name": "evil" }))).await;
    it.platform.deploy("evil", site("<p>evil</p>")).await;
    let evil = it.platform.visitor("evil");
    eventually("the other site", async || (evil.get("/").await.status() == 200).then_some(())).await;
    cookies_of_a_sibling_are_ignored(&it).await;
    link_of_an_attacker_signs_nobody_in(&it).await;
    pages_of_a_sibling_cannot_use_the_session(&it).await;
    sign_in_is_disabled_in_mid_flow(&it).await;
}

async fn open_evil(it: &Fixture) {
    it.browser.open(&it.platform.origin("evil")).await;
    it.browser.wait_for_text("evil").await;
}

/// Cookie tossing: the other site sets cookies for the common domain.
async fn cookies_of_a_sibling_are_ignored(it: &Fixture) {
    let attacker = it.platform.visitor("club");
    let callback = attacker.approve("codehost", "grace").await;
    let flow = attacker.cookies();
    let other = it.platform.visitor("club");
    other.sign_in("messenger", "mallory").await;
    let session = other.session_cookie().unwrap();
    open_evil(it).await;
    let toss = async |name: &str, value: &str, attributes: &str| {
        it.browser.run(&format!("document.cookie = '{name}={value}; Domain=apps.localhost; {attributes}'")).await;
    };
    for path in ["Path=/; Secure", "Path=/__svc/auth; Secure", "Path=/members; Secure"] {
        toss(SESSION, &session, path).await;
        toss("svc_auth", &session, path).await;
        for (name, value) in &flow {
            toss(name, value, path).await;
            toss(name.trim_start_matches("__Host-"), value, path).await;
        }
    }
    // The browser refuses the prefix, and sends the other cookies to all sites of the domain.
    let stored = it.browser.run("return document.cookie").await;
    assert!(stored.as_str().unwrap().contains("svc_auth=") && !stored.as_str().unwrap().contains("__Host"), "{stored}");
    it.open("/").await;
    it.browser.wait_for_text("Only members").await;
    assert!(it.has_cookie("svc_auth").await);
    assert_eq!(it.user().await, Value::Null);
    it.open(&callback).await;
    it.browser.wait_for_text("This sign-in has expired").await;
    assert_eq!(it.user().await, Value::Null);
    it.sign_in("webaccount", "ada").await;
    assert_eq!(it.user().await["name"], "Ada Lovelace");
}

/// Login CSRF, without and with a sign-in of the victim in progress.
async fn link_of_an_attacker_signs_nobody_in(it: &Fixture) {
    let attacker = it.platform.visitor("club");
    let link = attacker.approve("codehost", "grace").await;
    open_evil(it).await;
    it.browser.run(&format!("location.href = '{}{link}'", it.origin)).await;
    it.browser.wait_for_text("This sign-in has expired").await;
    assert_eq!(it.user().await["name"], "Ada Lovelace");
}

async fn pages_of_a_sibling_cannot_use_the_session(it: &Fixture) {
    // A form that signs out. Browsers send cookies with it, because both hosts are of the same site.
    open_evil(it).await;
    let form = format!(
        "document.body.innerHTML = '<form method=post action=\"{}/__svc/auth/logout\"></form>'; document.forms[0].submit()",
        it.origin
    );
    it.browser.run(&form).await;
    it.browser.wait_for_text("This request came from another site").await;
    assert_eq!(it.user().await["name"], "Ada Lovelace");
    // A script that reads the user, and a frame.
    open_evil(it).await;
    let read = format!(
        "const done = arguments[arguments.length - 1]; \
         fetch('{}/__svc/auth/session', {{ credentials: 'include' }}).then(it => it.text()).then(done, () => done('blocked'))",
        it.origin
    );
    let read = it.browser.call("/execute/async", json!({ "script": read, "args": [] })).await;
    assert_eq!(read, "blocked");
    let framed = format!(
        "const done = arguments[arguments.length - 1]; const frame = document.createElement('iframe'); \
         frame.onload = () => done(); frame.src = '{}/__svc/auth/login/unknown'; document.body.append(frame)",
        it.origin
    );
    it.browser.call("/execute/async", json!({ "script": framed, "args": [] })).await;
    let frame = it.browser.element("iframe").await;
    it.browser.call("/frame", json!({ "id": { ELEMENT: frame } })).await;
    let shown = it.browser.run("return location.href").await;
    assert!(shown.as_str().unwrap().starts_with("chrome-error:"), "{shown}");
    it.browser.call("/frame", json!({ "id": null })).await;
}

async fn sign_in_is_disabled_in_mid_flow(it: &Fixture) {
    it.open("/").await;
    it.browser.click("form[action='/__svc/auth/logout'] button").await;
    it.browser.wait_for_text("Only members").await;
    it.open("/members").await;
    it.continue_with("webaccount").await;
    it.platform.call("DELETE", "/v1/orgs/ada/projects/club/auth", None).await;
    let visitor = it.platform.visitor("club");
    let is_over = async || (visitor.get("/__svc/auth/session").await.status() == 404).then_some(());
    eventually("the paths are the worker's", is_over).await;
    it.choose("ada").await;
    let callback = format!("{}/__svc/auth/callback/webaccount", it.origin);
    eventually("the worker's response", async || {
        let page = it.browser.run("return location.href").await;
        page.as_str().unwrap().starts_with(&callback).then_some(())
    })
    .await;
    assert!(!it.has_cookie(SESSION).await);
}
