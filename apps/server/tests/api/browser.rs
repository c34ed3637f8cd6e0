//! Access to protected sites in a real browser: Chromium, driven by `chromedriver` (W3C WebDriver) if both are
//! installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App as Stub, HttpResponse, HttpServer, web};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::convergence::nodes::TestNode;
use crate::support::{App, Caller, client, site};
use testkit::reserved_port;

const HOST: &str = "site-ada.localhost";
const ACCESS: &str = "/v1/orgs/ada/projects/site/access";
/// The key of an element reference (W3C WebDriver).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A headless Chromium with an empty profile.
struct Browser {
    driver: Child,
    session: String,
    profile: PathBuf,
}

impl Browser {
    /// Returns `None` and prints a notice if no browser is installed.
    async fn start() -> Option<Self> {
        let port = reserved_port();
        let driver = Command::new("chromedriver").arg(format!("--port={port}")).stdout(Stdio::null()).spawn();
        let Ok(driver) = driver else {
            eprintln!("SKIPPED: chromedriver is not installed; install Debian's chromium and chromium-driver");
            return None;
        };
        let profile = std::env::temp_dir().join(format!("svc-browser-{port}"));
        let mut browser = Self { driver, session: format!("http://127.0.0.1:{port}/session"), profile };
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            format!("--user-data-dir={}", browser.profile.display()),
        ];
        let capabilities = json!({ "alwaysMatch": { "goog:chromeOptions": { "args": arguments } } });
        for attempt in 0.. {
            let asked = client().post(&browser.session).json(&json!({ "capabilities": capabilities })).send().await;
            if let Ok(response) = asked {
                let response: Value = response.json().await.unwrap();
                let session = response["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{response}"));
                browser.session = format!("{}/{session}", browser.session);
                return Some(browser);
            }
            assert!(attempt < 100, "chromedriver did not start");
            sleep(Duration::from_millis(100)).await;
        }
        None
    }

    async fn call(&self, path: &str, body: Value) -> Value {
        let response = client().post(format!("{}{path}", self.session)).json(&body).send().await.unwrap();
        let (status, response) = (response.status(), response.json::<Value>().await.unwrap());
        assert!(status.is_success(), "{path}: {response}");
        response["value"].clone()
    }

    async fn open(&self, url: &str) {
        self.call("/url", json!({ "url": url })).await;
    }

    /// Runs a script in the page and returns its result.
    async fn run(&self, script: &str) -> Value {
        self.call("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    async fn element(&self, css: &str) -> String {
        let found = self.call("/element", json!({ "using": "css selector", "value": css })).await;
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    async fn enter(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        self.call(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    async fn click(&self, css: &str) {
        let element = self.element(css).await;
        self.call(&format!("/element/{element}/click"), json!({})).await;
    }

    /// Waits until the page contains this text. Returns the URL of the page.
    async fn wait_for_text(&self, text: &str) -> String {
        for _ in 0..200 {
            let page = self.run("return [document.body && document.body.innerText || '', location.href]").await;
            if page[0].as_str().unwrap().contains(text) {
                return page[1].as_str().unwrap().to_owned();
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("{text:?} is not in the page: {}", self.run("return document.documentElement.outerHTML").await);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Delete the session first, because killing the driver leaves browser processes behind.
        let session = self.session.clone();
        let deleted = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { client().delete(&session).send().await.is_ok() })
        });
        let _ = deleted.join();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// The authorize page of a dashboard: it calls the API as the signed-in user and redirects the browser.
fn dashboard(port: u16, api: &str, token: &str) -> ServerHandle {
    let screen = format!(
        "<!doctype html><title>Dashboard</title><p>one moment</p><script>\
         const asked = Object.fromEntries(new URLSearchParams(location.search));\
         fetch('{api}/v1/access/authorize', {{ method: 'POST', body: JSON.stringify(asked), headers: \
         {{ 'content-type': 'application/json', authorization: 'Bearer {token}' }} }})\
         .then(answer => answer.json())\
         .then(answer => {{ if (answer.redirect) location = answer.redirect; else document.body.innerText = answer.code }});\
         </script>"
    );
    let app = move || {
        let screen = screen.clone();
        Stub::new().route(
            "/access/authorize",
            web::get().to(move || {
                let page = HttpResponse::Ok().content_type("text/html").body(screen.clone());
                async { page }
            }),
        )
    };
    let server = HttpServer::new(app).workers(1).disable_signals().bind(("127.0.0.1", port)).unwrap().run();
    let handle = server.handle();
    tokio::spawn(server);
    handle
}

/// Sets an access policy and waits until the node applies it.
async fn protect(ada: &Caller, edge: &TestNode, policy: Value, status: u16) {
    ada.put(ACCESS, policy).await.expect(200);
    edge.wait_for_status(HOST, status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_get_access_by_password_sign_in_and_bypass_key() {
    let Some(browser) = Browser::start().await else { return };
    let (front, screen) = (reserved_port(), reserved_port());
    let app = App::with(|config| {
        config.site_url = format!("http://{{hostname}}:{front}").parse().unwrap();
        config.gateway.site.dashboard_url = format!("http://127.0.0.1:{screen}");
    })
    .await;
    let edge = TestNode::listening(&app, &format!("127.0.0.1:{front}")).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload("/v1/orgs/ada/projects/site/deployments", site("<p>inside</p>")).await.expect(201);
    edge.wait_for_page(HOST, "<p>inside</p>").await;
    let (home, page) = (format!("http://{HOST}:{front}/"), format!("http://{HOST}:{front}/?a=b"));

    let password = "correct horse battery";
    protect(&ada, &edge, json!({ "mode": "password", "password": password }), 401).await;
    browser.open(&page).await;
    browser.wait_for_text("This site is protected").await;
    browser.enter("#password", "a wrong one").await;
    browser.click("button").await;
    browser.wait_for_text("The password is wrong").await;
    browser.enter("#password", password).await;
    browser.click("button").await;
    assert_eq!(browser.wait_for_text("inside").await, page);
    // The access cookie is HttpOnly and persists.
    assert_eq!(browser.run("return document.cookie").await, "");
    browser.open(&home).await;
    browser.wait_for_text("inside").await;

    // A new policy invalidates the cookie.
    protect(&ada, &edge, json!({ "mode": "org" }), 302).await;
    let stub = dashboard(screen, &app.base, ada.token.as_deref().unwrap());
    browser.open(&page).await;
    assert_eq!(browser.wait_for_text("inside").await, page);
    stub.stop(false).await;

    // The dashboard rejects a user who is not a member.
    protect(&ada, &edge, json!({ "mode": "password", "password": "another one entirely" }), 401).await;
    protect(&ada, &edge, json!({ "mode": "org" }), 302).await;
    let eve = app.sign_in("eve").await;
    let stub = dashboard(screen, &app.base, eve.token.as_deref().unwrap());
    browser.open(&page).await;
    browser.wait_for_text("forbidden").await;
    stub.stop(false).await;

    let key = ada.post(&format!("{ACCESS}/bypass"), json!({})).await.expect(200)["secret"].clone();
    let command = |name: &str, params: Value| json!({ "cmd": name, "params": params });
    browser.call("/goog/cdp/execute", command("Network.enable", json!({}))).await;
    let headers = json!({ "headers": { "Svc-Access-Bypass": key } });
    browser.call("/goog/cdp/execute", command("Network.setExtraHTTPHeaders", headers)).await;
    for _ in 0..100 {
        browser.open(&home).await;
        if browser.run("return Number(location.port)").await == front {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(browser.wait_for_text("inside").await, home);
    assert!(Path::new(&browser.profile).exists());
}
