//! Automatic top-ups at the sandbox's payments provider.

use sandbox::PaymentsFault;
use serde_json::{Value, json};
use testkit::random_id;

use super::calls::{admit, settle};
use super::{AI, AUTO_TOPUP, CREDIT, Kit, SMALL};
use crate::billing::org_id;
use crate::support::{ManualNode, eventually};

/// The amount of a top-up, five dollars, and the balance below which it starts.
const DOLLARS_5: i64 = 500_000_000;
const THRESHOLD: i64 = 400_000_000;

/// Ada with credit, a saved card, auto top-up, and a node for her project.
struct Rig {
    kit: Kit,
    node: ManualNode,
    project: Value,
}

impl Rig {
    async fn start() -> Self {
        Self::of(Kit::start().await).await
    }

    async fn of(kit: Kit) -> Self {
        let node = ManualNode::new(&kit.app).await;
        let project = kit.project_id().await;
        kit.ada.post(AI, json!({})).await.expect(200);
        kit.buy().await;
        kit.save_card().await;
        let on = json!({ "enabled": true, "amountMicroCents": DOLLARS_5, "thresholdMicroCents": THRESHOLD });
        kit.ada.put(AUTO_TOPUP, on).await.expect(200);
        Self { kit, node, project }
    }

    /// Makes a call that costs 1.2 dollars.
    async fn call(&self) {
        let id = random_id().to_string();
        assert!(admit(&self.node, &self.project, &id, SMALL).await["admitted"].is_object());
        settle(&self.node, &id, json!({ "inputTokens": 0, "outputTokens": 5_000_000, "estimated": false })).await;
    }

    /// Returns whether each order at the provider is paid, without the first order, which is the checkout.
    fn orders(&self) -> Vec<bool> {
        self.kit.provider.orders().iter().skip(1).map(|(_, paid)| *paid).collect()
    }

    /// Waits for a condition. Makes retries due immediately. Ends no lease, so that attempts do not overlap: the lease of
    /// an attempt in progress has 40 seconds left or more, and the first five backoffs are shorter.
    async fn retry_until(&self, condition: impl AsyncFn() -> bool) {
        eventually("the condition", async || {
            let now = self.kit.app.clock.clock_rng().now();
            let retry = format!(
                "UPDATE store.outbox SET next_attempt_at = '{now}' \
                 WHERE topic = 'billing.topup' AND next_attempt_at < '{}'",
                now.plus_seconds(39)
            );
            self.kit.app.db_execute(&retry).await.unwrap();
            condition().await.then_some(())
        })
        .await;
    }

    async fn wait_for_orders(&self, orders: &[bool]) {
        self.retry_until(async || self.orders() == orders).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn low_balance_is_topped_up_once() {
    let rig = Rig::start().await;
    // All top-ups are on the same day.
    rig.kit.app.clock.stop();
    // The webhook is late. Further calls below the threshold start no second order.
    rig.kit.provider.hold();
    for _ in 0..3 {
        rig.call().await;
    }
    rig.wait_for_orders(&[true]).await;
    rig.call().await;
    rig.kit.provider.release(false);
    rig.kit.wait_for_balance(2 * DOLLARS_5 - 4 * 120_000_000).await;
    assert_eq!(rig.orders(), [true]);
    let topup = rig.kit.ledger().await.into_iter().find(|row| row["kind"] == "topup").unwrap();
    assert_eq!(topup["amountMicroCents"], DOLLARS_5);
    assert_eq!(rig.kit.ada.get(CREDIT).await.expect(200)["autoTopupsToday"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_responses_lead_to_one_charge() {
    let rig = Rig::start().await;
    // The provider creates the draft, but the response with its id is lost. So the draft is never charged.
    rig.kit.provider.inject(Some(PaymentsFault::LostResponse));
    rig.call().await;
    rig.wait_for_orders(&[false]).await;
    // The next draft is stored. Finalizing it fails with 409.
    rig.kit.provider.inject(Some(PaymentsFault::InProgress));
    rig.wait_for_orders(&[false, false]).await;
    rig.retry_until(async || rig.kit.app.db_rows(STORED).await.len() == 1).await;
    // The provider charges the order, but the response is lost. The next attempt receives 412.
    rig.kit.provider.inject(Some(PaymentsFault::LostResponse));
    rig.retry_until(async || rig.orders() == [false, true]).await;
    rig.kit.provider.inject(None);
    rig.retry_until(async || rig.kit.app.db_rows(QUEUED).await.is_empty()).await;
    rig.kit.wait_for_balance(2 * DOLLARS_5 - 120_000_000).await;
    assert_eq!(rig.orders(), [false, true]);
    let states = rig.kit.app.db_rows("SELECT state FROM billing.topup_orders").await;
    assert_eq!(states, [json!({ "state": "credited" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_payment_is_credited_by_its_event() {
    let rig = Rig::start().await;
    rig.kit.provider.inject(Some(PaymentsFault::Pending));
    rig.call().await;
    let failed = "SELECT id FROM store.outbox WHERE topic = 'billing.topup' AND last_error IS NOT NULL";
    eventually("the failed attempt", async || (rig.kit.app.db_rows(failed).await.len() == 1).then_some(())).await;
    assert_eq!(rig.orders(), [false]);
    // The payment succeeds.
    rig.kit.provider.inject(None);
    rig.kit.wait_for_balance(2 * DOLLARS_5 - 120_000_000).await;
    rig.retry_until(async || rig.kit.app.db_rows(QUEUED).await.is_empty()).await;
    assert_eq!(rig.orders(), [true]);
    let states = rig.kit.app.db_rows("SELECT state FROM billing.topup_orders").await;
    assert_eq!(states, [json!({ "state": "credited" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn declined_card_turns_auto_topup_off_with_a_notification() {
    let rig = Rig::start().await;
    let org = org_id(&rig.kit.ada).await;
    let org = org.as_str().unwrap();
    rig.kit.provider.set_card(org, true);
    rig.call().await;
    let off = async || rig.kit.ada.get(CREDIT).await.expect(200)["autoTopup"]["enabled"] == false;
    rig.retry_until(off).await;
    let notifications = rig.kit.ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].clone();
    assert_eq!(notifications[0]["kind"], "payment.failed", "{notifications}");
    let message = notifications[0]["message"].as_str().unwrap();
    assert!(message.contains("The automatic top-up is now off. Check your payment method"), "{message}");
    assert_eq!(rig.kit.app.db_audit("ada").await.last().unwrap(), "ai.autotopup.off");
    // Further calls charge nothing. Then the card works again, and the owner turns auto top-up on again.
    rig.call().await;
    assert_eq!((rig.orders(), rig.kit.balance().await), (vec![false], DOLLARS_5 - 240_000_000));
    rig.kit.provider.set_card(org, false);
    let on = json!({ "enabled": true, "amountMicroCents": DOLLARS_5, "thresholdMicroCents": THRESHOLD });
    rig.kit.ada.put(AUTO_TOPUP, on).await.expect(200);
    rig.call().await;
    rig.kit.wait_for_balance(2 * DOLLARS_5 - 360_000_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topup_that_becomes_a_dead_letter_turns_auto_topup_off() {
    let rig = Rig::start().await;
    rig.kit.provider.inject(Some(PaymentsFault::Unavailable));
    rig.call().await;
    let over = "UPDATE store.outbox SET failing_since = created_at - interval '3 days' WHERE topic = 'billing.topup'";
    let dead = "SELECT id FROM store.outbox WHERE topic = 'billing.topup' AND dead_lettered_at IS NOT NULL";
    rig.retry_until(async || {
        rig.kit.app.db_execute(over).await.unwrap();
        rig.kit.app.db_rows(dead).await.len() == 1
    })
    .await;
    rig.kit.provider.inject(None);
    let notifications = rig.kit.ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].clone();
    assert_eq!(notifications[0]["kind"], "payment.failed", "{notifications}");
    assert_eq!(rig.kit.app.db_audit("ada").await.last().unwrap(), "ai.autotopup.off");
    assert_eq!(rig.kit.ada.get(CREDIT).await.expect(200)["autoTopup"]["enabled"], false);
    // The command of an operator that retries the dead letter.
    let retry = "UPDATE store.outbox SET dead_lettered_at = NULL, failing_since = NULL, next_attempt_at = created_at \
         WHERE topic = 'billing.topup'";
    rig.kit.app.db_execute(retry).await.unwrap();
    rig.retry_until(async || rig.kit.app.db_rows(QUEUED).await.is_empty()).await;
    assert!(rig.orders().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_charge_turns_auto_topup_off() {
    for path_end in ["/orders/", "/finalize"] {
        let rig = Rig::start().await;
        rig.kit.provider.inject_into(path_end, PaymentsFault::OffSessionForbidden);
        rig.call().await;
        let off = async || rig.kit.ada.get(CREDIT).await.expect(200)["autoTopup"]["enabled"] == false;
        rig.retry_until(off).await;
        assert!(!rig.orders().contains(&true), "{path_end}");
        let notifications = rig.kit.ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].clone();
        assert_eq!(notifications[0]["kind"], "payment.failed", "{notifications}");
    }
}

/// The product of credit has a price that the buyer selects, so the provider charges it only in a checkout.
#[tokio::test(flavor = "multi_thread")]
async fn topup_under_the_product_of_checkouts_is_rejected() {
    let rig = Rig::of(Kit::with(|config| config.billing.products.topup = None).await).await;
    rig.call().await;
    let off = async || rig.kit.ada.get(CREDIT).await.expect(200)["autoTopup"]["enabled"] == false;
    rig.retry_until(off).await;
    assert!(rig.orders().is_empty());
    let notifications = rig.kit.ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].clone();
    assert_eq!(notifications[0]["kind"], "payment.failed", "{notifications}");
}

/// The top-ups whose draft order is stored.
const STORED: &str = "SELECT id FROM billing.topup_orders WHERE order_id IS NOT NULL";
/// The top-ups whose message is still in the outbox.
const QUEUED: &str = "SELECT id FROM store.outbox WHERE topic = 'billing.topup'";
