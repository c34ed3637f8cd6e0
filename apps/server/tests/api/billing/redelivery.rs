//! Each event takes effect once: when it is repeated, concurrent, or interrupted by a crash.

use futures_util::stream::{self, StreamExt as _};
use kernel::ClockRng;
use sandbox::{CREDIT_PRODUCT, PAYMENTS_WEBHOOK_SECRET, PaymentsServer};
use serde_json::{Value, json};
use testkit::{PrivatePostgres, TestDatabase};
use webhooks::SigningKey;

use super::HOOK;
use crate::paused_commit::{CRASHES, pause_inserts};
use crate::process::Process;
use crate::support::client;

/// The payments provider of a server. Each test delivers its webhooks itself.
struct Provider {
    url: String,
    org: Value,
}

impl Provider {
    async fn of(server: &Process) -> Self {
        let session = server.sign_in().await;
        let org = server.json(&session, "GET", "/v1/orgs", None).await["items"][0]["id"].clone();
        Self { url: format!("{}{HOOK}", server.base), org }
    }

    /// Delivers the event of an order of five dollars. Returns the status, or `None` without a response.
    async fn deliver(&self, id: &str, order: &str) -> Option<u16> {
        let event = json!({ "type": "order.paid", "timestamp": "2026-01-01T00:00:00Z", "data": {
            "id": order, "product_id": CREDIT_PRODUCT, "billing_reason": "purchase", "net_amount": 500,
            "currency": "usd", "customer_id": "cus_1", "customer": { "external_id": self.org }, "metadata": {},
        } });
        let body = event.to_string();
        let timestamp = ClockRng::system().now().unix_seconds().to_string();
        let signature = SigningKey::parse(PAYMENTS_WEBHOOK_SECRET).unwrap().sign(id, &timestamp, body.as_bytes());
        let request = client().post(&self.url).header("webhook-id", id).header("webhook-timestamp", timestamp);
        let response = request.header("webhook-signature", signature).body(body).send().await.ok()?;
        Some(response.status().as_u16())
    }
}

/// Returns the amounts of the ledger, the oldest first.
async fn amounts(server: &Process) -> Vec<Value> {
    let rows = server.database.rows("SELECT amount_micro_cents FROM billing.ledger ORDER BY ledger_id").await;
    rows.iter().map(|row| row["amount_micro_cents"].clone()).collect()
}

async fn is_consistent(server: &Process) {
    let violations = chaos::violations(&server.database.url(), &["test"]).await.unwrap();
    assert_eq!(violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_redeliveries_of_ten_events_take_effect_once_each() {
    let payments = PaymentsServer::start(None).await;
    let server = Process::with(&payments.settings()).await;
    let provider = Provider::of(&server).await;
    // Each order arrives under two webhook ids, and each webhook about fifty times, often at the same time.
    let deliveries = (0..1_000).map(|number| {
        let id = (number / 3) % 20;
        let order = id / 2;
        let provider = &provider;
        async move {
            let mut status = None;
            // The provider repeats a delivery that fails, here because it waited for too long.
            for _ in 0..10 {
                status = provider.deliver(&format!("delivery_{id}"), &format!("order_{order}")).await;
                if status != Some(503) {
                    break;
                }
            }
            status
        }
    });
    let statuses: Vec<Option<u16>> = stream::iter(deliveries).buffer_unordered(8).collect().await;
    assert!(statuses.iter().all(|status| *status == Some(200)), "{statuses:?}");
    assert_eq!(amounts(&server).await, vec![json!(500_000_000); 10]);
    assert_eq!(server.database.number("SELECT count(*) FROM billing.webhooks").await, 20);
    is_consistent(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_takes_effect_once_after_a_crash() {
    let Some(mut postgres) = PrivatePostgres::start() else { return };
    let database = TestDatabase::create_in(&postgres).await;
    database.run(&pause_inserts("billing.webhooks")).await;
    let payments = PaymentsServer::start(None).await;
    let mut server = Process::on(database, &payments.settings()).await;
    let provider = Provider::of(&server).await;
    for (number, crash) in (1..).zip(CRASHES) {
        let (id, order) = (format!("delivery_{number}"), format!("order_{number}"));
        server.database.run("INSERT INTO paused VALUES (true)").await;
        let delivery = provider.deliver(&id, &order);
        let ((), interrupted) = tokio::join!(crash.hit(&mut server, &mut postgres, "DELETE FROM paused"), delivery);
        assert_ne!(interrupted, Some(200), "{crash:?}");
        // The provider received no success, so it delivers the event again.
        assert_eq!(provider.deliver(&id, &order).await, Some(200), "{crash:?}");
        assert_eq!(amounts(&server).await, vec![json!(500_000_000); number], "{crash:?}");
    }
    is_consistent(&server).await;
}
