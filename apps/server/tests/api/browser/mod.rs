//! Pages in a real browser: Chromium, controlled through `chromedriver` (W3C WebDriver). The tests are skipped if one
//! of them is not installed.

mod access;
mod accessibility;
mod payments;
mod sign_in;
mod tls;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::reserved_port;
use tokio::time::sleep;

use crate::support::client;

/// The key of an element reference (W3C WebDriver).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A headless Chromium with an empty profile.
pub struct Browser {
    driver: Child,
    client: reqwest::Client,
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
        let session = format!("http://127.0.0.1:{port}/session");
        let mut browser = Self { driver, client: client(), session, profile };
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            format!("--user-data-dir={}", browser.profile.display()),
        ];
        let options = json!({ "goog:chromeOptions": { "args": arguments }, "acceptInsecureCerts": true });
        let capabilities = json!({ "alwaysMatch": options });
        for attempt in 0.. {
            let body = json!({ "capabilities": capabilities });
            if let Ok(response) = browser.client.post(&browser.session).json(&body).send().await {
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
        let response = self.client.post(format!("{}{path}", self.session)).json(&body).send().await.unwrap();
        let (status, response) = (response.status(), response.json::<Value>().await.unwrap());
        assert!(status.is_success(), "{path}: {response}");
        response["value"].clone()
    }

    async fn get(&self, path: &str) -> Value {
        let response = self.client.get(format!("{}{path}", self.session)).send().await.unwrap();
        response.json::<Value>().await.unwrap()["value"].clone()
    }

    /// Executes a command of the Chrome DevTools Protocol.
    async fn command(&self, name: &str, parameters: Value) {
        self.call("/goog/cdp/execute", json!({ "cmd": name, "params": parameters })).await;
    }

    /// Opens a tab, and returns its handle. The current tab stays the current one.
    async fn new_tab(&self) -> String {
        let tab = self.call("/window/new", json!({ "type": "tab" })).await;
        tab["handle"].as_str().unwrap().to_owned()
    }

    async fn switch_to(&self, handle: &str) {
        self.call("/window", json!({ "handle": handle })).await;
    }

    /// Returns the names and values of the cookies that the browser sends to the current page.
    async fn cookies(&self) -> Vec<(String, String)> {
        let cookies = self.get("/cookie").await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        cookies.as_array().unwrap().iter().map(|cookie| (text(&cookie["name"]), text(&cookie["value"]))).collect()
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
        for _ in 0..1200 {
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
