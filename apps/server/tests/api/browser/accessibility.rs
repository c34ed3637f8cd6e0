//! The sign-in pages with axe-core, at two widths and in both color schemes. CONTRIBUTING.md describes how to look at
//! the screenshots.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandbox::IdentityProvider;
use serde_json::json;

use super::Browser;
use super::tls::TlsProxy;
use crate::app_sign_in::{Platform, Visitor};
use crate::support::{eventually, external_program};

const AUTH: &str = "/v1/orgs/ada/projects/club/auth";
const WIDTHS: [u32; 2] = [320, 1280];
const SCHEMES: [&str; 2] = ["light", "dark"];
const LANGUAGES: [&str; 4] = ["en", "de", "fr", "ja"];

/// Runs axe-core in the current page.
const RUN_AXE: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document).then(
        ({ violations, passes }) =>
            done({ violations, passes: passes.length, width: document.documentElement.scrollWidth }),
        error => done(String(error)))";

/// The browser with axe-core.
struct Auditor {
    browser: Browser,
    /// The script that defines `axe`.
    axe: String,
    /// The folder of screenshots.
    screenshots: Option<PathBuf>,
}

impl Auditor {
    /// Checks the current page.
    async fn audit(&self, name: &str) {
        self.browser.run(&self.axe).await;
        for width in WIDTHS {
            let metrics = json!({ "width": width, "height": 700, "deviceScaleFactor": 1, "mobile": false });
            self.browser.command("Emulation.setDeviceMetricsOverride", metrics).await;
            for scheme in SCHEMES {
                let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
                self.browser.command("Emulation.setEmulatedMedia", features).await;
                let case = format!("{name}-{width}-{scheme}");
                if let Some(folder) = &self.screenshots {
                    let image = self.browser.get("/screenshot").await;
                    fs::write(folder.join(format!("{case}.png")), STANDARD.decode(image.as_str().unwrap()).unwrap())
                        .unwrap();
                }
                let result = self.browser.call("/execute/async", json!({ "script": RUN_AXE, "args": [] })).await;
                assert_eq!(result["violations"], json!([]), "{case}");
                assert!(result["passes"].as_u64().unwrap() > 5, "{case}: {result}");
                assert!(result["width"].as_u64().unwrap() <= u64::from(width), "{case} is too wide: {result}");
            }
        }
    }

    async fn open(&self, url: &str) {
        self.browser.open(url).await;
        self.browser.wait_for_text("").await;
    }

    async fn set_language(&self, language: &str) {
        self.browser.command("Network.enable", json!({})).await;
        let headers = json!({ "headers": { "Accept-Language": language } });
        self.browser.command("Network.setExtraHTTPHeaders", headers).await;
    }
}

/// Gives the browser a flow and opens its callback, so that the page of this outcome is shown.
async fn open_outcome(auditor: &Auditor, visitor: &Visitor, fields: &[(&str, &str)]) {
    auditor.open(&format!("{}/members", visitor.origin)).await;
    auditor.browser.click("a[href^='/__svc/auth/login/webaccount']").await;
    auditor.browser.wait_for_text("Deny access").await;
    for (name, value) in fields {
        auditor.browser.run(&format!("document.querySelector('select[name={name}]').value = '{value}'")).await;
    }
    let person = if fields.is_empty() { "" } else { "ada" };
    auditor.browser.click(&format!("button[value='{person}']")).await;
    let origin = json!(visitor.origin);
    let is_back = format!("return location.origin === {origin}");
    eventually("the callback", async || (auditor.browser.run(&is_back).await == true).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_pages_have_no_violations() {
    let Some(axe) = external_program("SVC_TEST_AXE") else { return };
    let Some(browser) = Browser::start().await else { return };
    let Some(platform) = Platform::with_club().await else { return };
    let _proxy = TlsProxy::start(platform.port, &platform.node.edge).await;
    let screenshots = std::env::var_os("SVC_TEST_SCREENSHOTS").map(PathBuf::from);
    let auditor = Auditor { browser, axe: fs::read_to_string(axe).unwrap(), screenshots };
    let visitor = platform.visitor("club");
    let login = format!("{}/__svc/auth/login?next=/members", visitor.origin);
    for language in LANGUAGES {
        auditor.set_language(language).await;
        auditor.open(&login).await;
        assert_eq!(auditor.browser.run("return document.documentElement.lang").await, language);
        auditor.audit(&format!("login-{language}")).await;
        open_outcome(&auditor, &visitor, &[]).await;
        auditor.audit(&format!("denied-{language}")).await;
    }
    auditor.set_language("en").await;
    open_outcome(&auditor, &visitor, &[("fault", "token: 500")]).await;
    auditor.audit("failed").await;
    open_outcome(&auditor, &visitor, &[("fault", "code: expired")]).await;
    auditor.audit("expired").await;
    for (name, path) in [("unknown", "login/other"), ("not-found", "other"), ("wrong-method", "logout")] {
        auditor.open(&format!("{}/__svc/auth/{path}", visitor.origin)).await;
        auditor.audit(name).await;
    }
    let brands =
        [("yellow", "#ffee00"), ("white", "#ffffff"), ("black", "#000000"), ("grey", "#777777"), ("red", "#ff0000")];
    for (name, color) in brands {
        let brand = json!({ "brandName": format!("A club with a very long name and a {name} colour {}", "x".repeat(40)), "brandColor": color });
        platform.call("PATCH", AUTH, Some(brand)).await;
        let has_brand =
            async || visitor.get("/__svc/auth/login").await.text().await.unwrap().contains(name).then_some(());
        eventually("the brand", has_brand).await;
        auditor.open(&login).await;
        auditor.audit(&format!("brand-{name}")).await;
    }
    for provider in IdentityProvider::ALL {
        platform.call("DELETE", &format!("{AUTH}/providers/{}", provider.as_str()), None).await;
    }
    let is_empty = async || (visitor.get("/__svc/auth/login").await.status() == 404).then_some(());
    eventually("no provider", is_empty).await;
    auditor.open(&login).await;
    auditor.audit("not-ready").await;
}
