//! The purchase of the pro plan at the sandbox's payments provider, with its webhooks.

use sandbox::{PaymentsFault, PaymentsServer};
use serde_json::{Value, json};
use testkit::reserved_address;

use super::{BILLING, use_provider};
use crate::support::{App, Caller, eventually};

const RETURN_TO: &str = "http://localhost:3000/billing?from=checkout";

struct Kit {
    app: App,
    ada: Caller,
    provider: PaymentsServer,
}

impl Kit {
    async fn start() -> Self {
        let listen = reserved_address();
        let provider = PaymentsServer::start(Some(format!("http://{listen}/v1/hooks/payments"))).await;
        let app = App::with(|config| {
            config.listen = listen;
            use_provider(config, &provider);
        })
        .await;
        let ada = app.sign_in("ada").await;
        Self { app, ada, provider }
    }

    async fn act(&self, action: &str, body: Value) -> Value {
        self.ada.post(&format!("{BILLING}/{action}"), body).await.expect(200).clone()
    }

    async fn check_out(&self) -> String {
        let page = self.act("checkout", json!({ "returnTo": RETURN_TO })).await;
        page["url"].as_str().unwrap().to_owned()
    }

    async fn wait_for_status(&self, plan: &str, status: &str) -> Value {
        eventually("the plan", async || {
            let shown = self.ada.get(BILLING).await.expect(200).clone();
            (shown["plan"] == plan && shown["status"] == status).then_some(shown)
        })
        .await
    }

    async fn org(&self) -> String {
        super::org_id(&self.ada).await.as_str().unwrap().to_owned()
    }

    /// Waits until every webhook has a response, and returns the events with their responses.
    async fn answered(&self) -> Vec<(String, String)> {
        eventually("the webhooks", async || {
            let deliveries = self.provider.deliveries();
            let answered = deliveries.iter().all(|delivery| delivery.status == Some(200));
            answered.then(|| deliveries.into_iter().map(|it| (it.event, it.response)).collect())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_is_bought_canceled_resumed_and_ends() {
    let kit = Kit::start().await;
    // An organization that never paid has no portal.
    kit.ada.post(&format!("{BILLING}/portal"), json!({})).await.expect_error(404, "not_found");
    kit.ada.post(&format!("{BILLING}/session"), json!({})).await.expect_error(404, "not_found");
    kit.ada.post(&format!("{BILLING}/cancel"), json!({ "cancel": true })).await.expect_error(409, "not_pro");

    let checkout = kit.check_out().await;
    kit.provider.hold();
    assert_eq!(kit.provider.pay(&checkout), RETURN_TO);
    // The payment does not change the plan.
    assert_eq!(kit.ada.get(BILLING).await.expect(200)["plan"], "free");
    kit.provider.release(false);
    let status = kit.wait_for_status("pro", "active").await;
    assert_eq!((&status["enabled"], &status["sandbox"]), (&json!(true), &json!(true)));
    assert!(status["periodEnd"].is_string());
    let applied: Vec<_> = kit.answered().await.into_iter().filter(|(_, body)| body.contains("true")).collect();
    assert_eq!(applied, [("subscription.active".to_owned(), "{\"applied\":true}".to_owned())]);
    let again = kit.ada.post(&format!("{BILLING}/checkout"), json!({ "returnTo": RETURN_TO })).await;
    again.expect_error(409, "already_pro");

    let portal = kit.act("portal", json!({ "returnTo": RETURN_TO })).await;
    let page = reqwest::get(portal["url"].as_str().unwrap()).await.unwrap().text().await.unwrap();
    assert!(page.contains("Customer portal") && page.contains(RETURN_TO), "{page}");
    let session = kit.act("session", json!({})).await;
    assert!(session["token"].as_str().unwrap().starts_with("polar_cst_"));

    for cancel in [true, true, false, false, true] {
        assert_eq!(kit.act("cancel", json!({ "cancel": cancel })).await["cancelAtPeriodEnd"], cancel);
        kit.answered().await;
        assert_eq!(kit.ada.get(BILLING).await.expect(200)["cancelAtPeriodEnd"], cancel);
    }
    kit.provider.set_subscription_status(&kit.org().await, "past_due");
    kit.wait_for_status("pro", "past_due").await;
    kit.provider.set_subscription_status(&kit.org().await, "canceled");
    kit.wait_for_status("free", "canceled").await;
    // The plan can be bought again.
    let _ = kit.provider.pay(&kit.check_out().await);
    kit.wait_for_status("pro", "active").await;
    let events = kit.app.db_audit("ada").await;
    let expected = [
        "billing.checkout",
        "billing.plan",
        "billing.portal",
        "billing.session",
        "billing.cancel",
        "billing.resume",
        "billing.cancel",
        "billing.plan",
        "billing.checkout",
        "billing.plan",
    ];
    assert_eq!(events, expected);
    let secret = session["token"].as_str().unwrap();
    let audit = kit.app.db_rows("SELECT data::text, target FROM store.audit").await;
    assert!(audit.iter().all(|row| !row.to_string().contains(secret)));
}

/// Two admins complete two checkouts before the first webhook arrives.
#[tokio::test(flavor = "multi_thread")]
async fn cancellation_applies_to_both_subscriptions() {
    let kit = Kit::start().await;
    let checkouts = [kit.check_out().await, kit.check_out().await];
    kit.provider.hold();
    for checkout in &checkouts {
        assert_eq!(kit.provider.pay(checkout), RETURN_TO);
    }
    kit.provider.release(false);
    kit.answered().await;
    kit.wait_for_status("pro", "active").await;
    for cancel in [true, false, true] {
        assert_eq!(kit.act("cancel", json!({ "cancel": cancel })).await["cancelAtPeriodEnd"], cancel);
        let schedules: Vec<bool> = kit.provider.subscriptions().into_iter().map(|(_, ends)| ends).collect();
        assert_eq!(schedules, [cancel, cancel]);
        kit.answered().await;
        assert_eq!(kit.ada.get(BILLING).await.expect(200)["cancelAtPeriodEnd"], cancel);
    }
}

/// The webhook of the end is lost. The provider refuses the cancellation as if it were a repeated one.
#[tokio::test(flavor = "multi_thread")]
async fn cancellation_of_a_subscription_that_has_ended_fails_until_its_webhook_arrives() {
    let kit = Kit::start().await;
    let _ = kit.provider.pay(&kit.check_out().await);
    kit.wait_for_status("pro", "active").await;
    kit.answered().await;
    kit.provider.hold();
    kit.provider.set_subscription_status(&kit.org().await, "canceled");
    for _ in 0..2 {
        let canceled = kit.ada.post(&format!("{BILLING}/cancel"), json!({ "cancel": true })).await;
        canceled.expect_error(502, "billing_unavailable");
        assert_eq!(kit.ada.get(BILLING).await.expect(200)["cancelAtPeriodEnd"], false);
    }
    kit.provider.release(false);
    kit.wait_for_status("free", "canceled").await;
    kit.ada.post(&format!("{BILLING}/cancel"), json!({ "cancel": true })).await.expect_error(409, "not_pro");
    assert_eq!(kit.app.db_audit("ada").await, ["billing.checkout", "billing.plan", "billing.plan"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reordered_and_repeated_webhooks_end_in_the_last_state() {
    let kit = Kit::start().await;
    let checkout = kit.check_out().await;
    kit.provider.hold();
    let _ = kit.provider.pay(&checkout);
    for status in ["past_due", "active", "canceled", "active"] {
        kit.provider.set_subscription_status(&kit.org().await, status);
    }
    kit.provider.release(true);
    kit.wait_for_status("pro", "active").await;
    kit.answered().await;
    for delivery in kit.provider.deliveries() {
        kit.provider.redeliver(&delivery.id);
    }
    eventually("the repeated webhooks", async || {
        kit.provider.deliveries().iter().all(|delivery| delivery.attempts == 2).then_some(())
    })
    .await;
    assert!(kit.answered().await.iter().all(|(_, response)| response == "{\"applied\":false}"));
    assert_eq!(kit.ada.get(BILLING).await.expect(200)["plan"], "pro");
    let plans = kit.app.db_audit("ada").await;
    assert_eq!(plans.iter().filter(|event| *event == "billing.plan").count(), 1, "{plans:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_that_fails_changes_nothing() {
    let kit = Kit::start().await;
    let _ = kit.provider.pay(&kit.check_out().await);
    kit.wait_for_status("pro", "active").await;
    kit.answered().await;
    let audit = kit.app.db_audit("ada").await;
    let bob = kit.app.sign_in("bob").await;
    let html = [PaymentsFault::Html, PaymentsFault::HtmlError(404), PaymentsFault::HtmlError(422)];
    for fault in [PaymentsFault::Unavailable, PaymentsFault::TooManyRequests].into_iter().chain(html) {
        kit.provider.inject(Some(fault));
        for (action, body) in [("portal", json!({})), ("session", json!({})), ("cancel", json!({ "cancel": true }))] {
            let refused = kit.ada.post(&format!("{BILLING}/{action}"), body).await;
            refused.expect_error(502, "billing_unavailable");
        }
        let body = json!({ "returnTo": RETURN_TO });
        bob.post("/v1/orgs/bob/billing/checkout", body).await.expect_error(502, "billing_unavailable");
    }
    assert_eq!(kit.app.db_audit("ada").await, audit);
    assert_eq!(kit.ada.get(BILLING).await.expect(200)["cancelAtPeriodEnd"], false);
    // The client repeats a request if the provider asks for a short wait.
    kit.provider.inject(Some(PaymentsFault::TooManyRequestsOnce));
    kit.act("cancel", json!({ "cancel": true })).await;
}

/// A provider that hangs blocks neither other requests nor the organization's webhooks.
#[tokio::test(flavor = "multi_thread")]
async fn provider_that_hangs_blocks_nothing_else() {
    let kit = Kit::start().await;
    let checkout = kit.check_out().await;
    kit.provider.inject(Some(PaymentsFault::Hang));
    // Send more requests than the organization may have in progress.
    let hanging: Vec<_> = (0..8)
        .map(|_| {
            let ada = kit.app.connect(&kit.ada);
            tokio::spawn(
                async move { ada.post(&format!("{BILLING}/checkout"), json!({ "returnTo": RETURN_TO })).await },
            )
        })
        .collect();
    eventually("the calls", async || (kit.provider.hanging() == hanging.len()).then_some(())).await;
    let _ = kit.provider.pay(&checkout);
    kit.wait_for_status("pro", "active").await;
    kit.ada.patch("/v1/orgs/ada", json!({ "name": "Ada" })).await.expect(200);
    assert!(hanging.iter().all(|request| !request.is_finished()));
    kit.provider.inject(None);
    for request in hanging {
        request.await.unwrap().expect_error(502, "billing_unavailable");
    }
}
