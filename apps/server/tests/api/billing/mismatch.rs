//! A buyer who enters one email address for two organizations.

use sandbox::PaymentsServer;
use serde_json::{Value, json};
use testkit::reserved_port;

use super::HOOK;
use crate::process::Process;
use crate::support::eventually;

struct Kit {
    server: Process,
    session: String,
    payments: PaymentsServer,
}

impl Kit {
    async fn start() -> Self {
        let port = reserved_port();
        let payments = PaymentsServer::start(Some(format!("http://127.0.0.1:{port}{HOOK}"))).await;
        let server = Process::at(port, &payments.settings()).await;
        let session = server.sign_in().await;
        server.json(&session, "POST", "/v1/orgs", Some(json!({ "slug": "team" }))).await;
        Self { server, session, payments }
    }

    async fn get(&self, path: &str) -> Value {
        self.server.json(&self.session, "GET", path, None).await
    }

    async fn pay(&self, checkout: &str, mut body: Value, email: &str) {
        body["returnTo"] = format!("{}/docs", self.server.base).into();
        let page = self.server.json(&self.session, "POST", checkout, Some(body)).await;
        let _ = self.payments.pay_as(page["url"].as_str().unwrap(), email);
    }

    async fn buy_plan(&self, org: &str, email: &str) {
        self.pay(&format!("/v1/orgs/{org}/billing/checkout"), json!({}), email).await;
    }

    /// Buys AI credit for five dollars.
    async fn buy_credit(&self, org: &str, email: &str) {
        let body = json!({ "microCents": 500_000_000 });
        self.pay(&format!("/v1/orgs/{org}/ai/credit/checkout"), body, email).await;
    }

    /// Waits until both organizations have these plans, and the server has counted this number of mismatches.
    async fn wait_for(&self, ada: &str, team: &str, mismatches: &str) {
        eventually("the plans and the metric", async || {
            let plans = [self.get("/v1/orgs/ada/billing").await, self.get("/v1/orgs/team/billing").await];
            let metrics = self.server.metrics().await;
            let line = metrics.lines().find(|line| line.starts_with("svc_billing_customer_mismatches_total{"))?;
            (plans[0]["plan"] == ada && plans[1]["plan"] == team && line.ends_with(&format!(" {mismatches}")))
                .then_some(())
        })
        .await;
    }
}

/// The contract assigns an event to the organization of its customer.
#[tokio::test(flavor = "multi_thread")]
async fn payment_of_another_organizations_customer_is_counted_and_corrected() {
    let kit = Kit::start().await;
    let orgs = kit.get("/v1/orgs").await;
    let ada = orgs["items"].as_array().unwrap().iter().find(|org| org["slug"] == "ada").unwrap()["id"].clone();
    kit.buy_credit("ada", "ada@example.com").await;
    kit.buy_plan("team", "Ada@example.com").await;
    // The events `subscription.active` and `subscription.updated`.
    kit.wait_for("pro", "free", "2").await;
    assert!(kit.server.log().contains("the customer of an event belongs to another organization than its checkout"));
    // The operator ends the subscription, and the team buys the plan with another email address.
    kit.payments.set_subscription_status(ada.as_str().unwrap(), "canceled");
    kit.wait_for("free", "free", "3").await;
    kit.buy_plan("team", "ada+team@example.com").await;
    kit.wait_for("free", "pro", "3").await;
    // The address of a customer is not asked for again.
    kit.buy_credit("team", "ada@example.com").await;
    eventually("the credit", async || {
        (kit.get("/v1/orgs/team/ai/credit").await["balanceMicroCents"] == 500_000_000).then_some(())
    })
    .await;
    kit.wait_for("free", "pro", "3").await;
}
