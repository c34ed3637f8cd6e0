//! The pages of the payments provider, for the plan and credit, and the chat page of an example.

use std::fs;
use std::path::Path;

use sandbox::{AiServer, PaymentsServer};
use serde_json::{Value, json};
use testkit::reserved_port;

use super::Browser;
use crate::convergence::node_process::{Node, workerd};
use crate::process::Process;
use crate::support::{bundle, client, eventually};

const BILLING: &str = "/v1/orgs/ada/billing";
const CREDIT: &str = "/v1/orgs/ada/ai/credit";

/// Ada with a browser and a session.
struct Ada {
    browser: Browser,
    server: Process,
    session: String,
    return_to: String,
}

impl Ada {
    async fn get(&self, path: &str) -> Value {
        self.server.json(&self.session, "GET", path, None).await
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Value {
        self.server.json(&self.session, method, path, Some(body)).await
    }

    /// Opens a page of the provider.
    async fn visit(&self, path: &str, mut request: Value) {
        request["returnTo"] = self.return_to.clone().into();
        let page = self.call("POST", path, request).await;
        self.browser.open(page["url"].as_str().unwrap()).await;
    }

    async fn click(&self, action: &str) {
        self.browser.click(&format!("button[value={action}]")).await;
    }

    /// Waits until a field of a resource has this value.
    async fn sees(&self, path: &str, pointer: &str, value: Value) {
        let seen = async || (self.get(path).await.pointer(pointer) == Some(&value)).then_some(());
        eventually(&format!("{pointer} of {path} is {value}"), seen).await;
    }

    /// Sends a message on the chat page after the previous answer is complete, and waits for the answer.
    async fn chat(&self, message: &str) {
        const IS_READY: &str = "return !document.querySelector('#form button').disabled";
        let is_ready = async || (self.browser.run(IS_READY).await == json!(true)).then_some(());
        eventually("the previous answer", is_ready).await;
        self.browser.enter("#message", message).await;
        self.browser.click("#form button").await;
        self.browser.wait_for_text(&format!("You said: {message}")).await;
    }
}

/// Returns the files of the example.
fn example() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/chat");
    let names = ["svc.json", "worker/index.js", "assets/index.html", "assets/chat.js", "assets/style.css"];
    let files = names.map(|name| (name, fs::read(folder.join(name)).unwrap()));
    bundle(&files.each_ref().map(|(name, content)| (*name, content.as_slice())))
}

#[tokio::test(flavor = "multi_thread")]
async fn user_buys_the_plan_and_credit_and_chats() {
    let (Some(browser), Some(workerd)) = (Browser::start().await, workerd()) else { return };
    let (port, edge) = (reserved_port(), reserved_port());
    let payments = PaymentsServer::start(Some(format!("http://127.0.0.1:{port}/v1/hooks/payments"))).await;
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/ai-models.example.json");
    let mut settings = payments.settings().to_vec();
    settings.push(("SVC_AI_MODELS", models.display().to_string()));
    settings.push(("SVC_SITE_URL", format!("http://{{hostname}}:{edge}")));
    let server = Process::at(port, &settings).await;
    let upstream = AiServer::start().await;
    let settings = [&[("SVC_NODE_WORKERD", workerd)][..], &upstream.settings()].concat();
    let _node = Node::at(&server, edge, &settings).await;
    let (session, return_to) = (server.sign_in().await, format!("{}/docs", server.base));
    let ada = Ada { browser, server, session, return_to };

    ada.visit(&format!("{BILLING}/checkout"), json!({})).await;
    ada.click("decline").await;
    ada.browser.wait_for_text("The card was declined.").await;
    assert_eq!(ada.get(BILLING).await["plan"], "free");
    ada.click("pay").await;
    ada.sees(BILLING, "/plan", json!("pro")).await;
    let page = ada.browser.run("return location.href").await;
    assert!(page.as_str().unwrap().starts_with(&ada.return_to), "{page}");

    ada.visit(&format!("{BILLING}/portal"), json!({})).await;
    ada.click("cancel").await;
    ada.browser.wait_for_text("Resume").await;
    ada.sees(BILLING, "/cancelAtPeriodEnd", json!(true)).await;
    ada.click("resume").await;
    ada.sees(BILLING, "/cancelAtPeriodEnd", json!(false)).await;

    ada.visit(&format!("{CREDIT}/checkout"), json!({ "microCents": 500_000_000 })).await;
    ada.click("pay").await;
    ada.sees(CREDIT, "/balanceMicroCents", json!(500_000_000)).await;

    ada.call("POST", "/v1/orgs/ada/projects", json!({ "name": "chat" })).await;
    ada.call("POST", "/v1/orgs/ada/projects/chat/ai", json!({})).await;
    let deploy = client().post(format!("{}/v1/orgs/ada/projects/chat/deployments", ada.server.base));
    let deploy = deploy.bearer_auth(&ada.session).header("content-type", "application/gzip").body(example());
    assert_eq!(deploy.send().await.unwrap().status(), 201);
    let models = format!("http://127.0.0.1:{edge}/models");
    let serves =
        async || client().get(&models).header("host", "chat-ada.localhost").send().await.ok()?.text().await.ok();
    eventually("the models", async || serves().await?.contains("lab/large").then_some(())).await;
    ada.browser.open(&format!("http://chat-ada.localhost:{edge}/")).await;
    ada.browser.wait_for_text("lab/large").await;
    ada.chat("Hello from the browser").await;
    ada.sees("/v1/orgs/ada/ai/ledger", "/items/0/kind", json!("call")).await;
    let row = ada.get("/v1/orgs/ada/ai/ledger").await["items"][0].clone();
    let tokens = |name: &str| row[name].as_i64().unwrap();
    assert_eq!(row["amountMicroCents"], -(300 * tokens("inputTokens") + 1_500 * tokens("outputTokens")), "{row}");

    // The page omits the oldest messages of a long conversation, which the worker rejects.
    for number in 1..=21 {
        ada.chat(&format!("Question {number}")).await;
    }

    // The automatic top-up is declined, and turned off.
    ada.visit(&format!("{BILLING}/portal"), json!({})).await;
    ada.click("declined").await;
    ada.browser.wait_for_text("is declined").await;
    let on = json!({ "enabled": true, "amountMicroCents": 500_000_000, "thresholdMicroCents": 499_999_999 });
    ada.call("PUT", "/v1/orgs/ada/ai/autotopup", on).await;
    ada.browser.open(&format!("http://chat-ada.localhost:{edge}/")).await;
    ada.browser.wait_for_text("lab/large").await;
    ada.chat("Buy more credit").await;
    ada.sees(CREDIT, "/autoTopup/enabled", json!(false)).await;
    ada.sees("/v1/orgs/ada/notifications", "/items/0/kind", json!("payment.failed")).await;
    // The provider accepted the order, which remains a draft.
    assert_eq!(payments.orders().pop().map(|(_, paid)| paid), Some(false));
}
