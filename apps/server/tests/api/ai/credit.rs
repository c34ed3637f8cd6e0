//! AI credit, its checkout and its ledger.

use sandbox::PaymentsFault;
use serde_json::{Value, json};

use super::{AUTO_TOPUP, CHECKOUT, CREDIT, Kit, LEDGER, PATIENCE, RETURN_TO};
use crate::support::App;

const TIERS: [i64; 5] = [500_000_000, 1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000];

/// Returns the paths of the invalid fields that an error names.
fn fields(error: &Value) -> Vec<&str> {
    let fields = error["details"]["fields"].as_array().unwrap();
    fields.iter().map(|field| field["path"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn paid_checkout_is_credited_by_its_event_only() {
    let kit = Kit::start().await;
    let off = json!({ "enabled": false, "amountMicroCents": null, "thresholdMicroCents": null });
    assert_eq!(
        *kit.ada.get(CREDIT).await.expect(200),
        json!({ "balanceMicroCents": 0, "hasPaymentMethod": false, "autoTopupsToday": 0, "autoTopupPerDay": 3,
            "autoTopup": off, "tiersMicroCents": TIERS })
    );
    kit.provider.hold();
    let checkout = kit.check_out(1_000_000_000).await;
    assert_eq!(kit.provider.pay(&checkout), RETURN_TO);
    // The browser's return changes nothing.
    assert_eq!(kit.balance().await, 0);
    kit.provider.release(true);
    kit.wait_for_balance(1_000_000_000).await;
    for delivery in kit.provider.deliveries() {
        kit.provider.redeliver(&delivery.id);
    }
    kit.buy().await;
    let rows = kit.ledger().await;
    let shown: Vec<[&Value; 4]> = rows
        .iter()
        .map(|row| [&row["ledger_id"], &row["kind"], &row["amountMicroCents"], &row["balanceMicroCents"]])
        .collect();
    assert_eq!(
        json!(shown),
        json!([[2, "topup", 500_000_000, 1_500_000_000], [1, "topup", 1_000_000_000, 1_000_000_000]])
    );
    for field in ["project", "model", "inputTokens", "outputTokens"] {
        assert_eq!(rows[0][field], Value::Null, "{field}");
    }
    let page = kit.ada.get(&format!("{LEDGER}?limit=1")).await.expect(200).clone();
    assert_eq!((&page["items"][0]["ledger_id"], &page["nextBefore"]), (&json!(2), &json!(2)));
    let page = kit.ada.get(&format!("{LEDGER}?limit=1&before=2")).await.expect(200).clone();
    assert_eq!((&page["items"][0]["ledger_id"], &page["nextBefore"]), (&json!(1), &Value::Null));
    for query in ["limit=0", "limit=x", "before=0", "before=-1", "before=1.5", "before=", "before=2&before=3"] {
        kit.ada.get(&format!("{LEDGER}?{query}")).await.expect_error(400, "bad_request");
    }
    let huge = format!("{LEDGER}?limit=99999999999&before=99999999999999999999");
    assert_eq!(kit.ada.get(&huge).await.expect(200)["items"].as_array().unwrap().len(), 2);
    let audit = kit.app.db_audit("ada").await;
    let events: Vec<&str> = audit.iter().map(String::as_str).filter(|event| event.contains("credit")).collect();
    assert_eq!(events, ["ai.credit.checkout", "billing.credit", "ai.credit.checkout", "billing.credit"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn checkout_requires_a_tier_and_an_address_of_this_installation() {
    let kit = Kit::start().await;
    for (micro_cents, return_to, field) in [
        (json!(500_000_001), RETURN_TO, "microCents"),
        (json!(0), RETURN_TO, "microCents"),
        (json!(-500_000_000), RETURN_TO, "microCents"),
        (json!(5.5), RETURN_TO, "microCents"),
        (json!("500000000"), RETURN_TO, "microCents"),
        (json!(500_000_000), "https://evil.example/", "returnTo"),
        (json!(500_000_000), "http://localhost:3000@evil.example/", "returnTo"),
    ] {
        let request = json!({ "microCents": micro_cents, "returnTo": return_to });
        let refused = kit.ada.post(CHECKOUT, request).await;
        let error = refused.expect_error(400, "bad_request");
        assert!(error.to_string().contains(field), "{error}");
    }
    let bob = kit.app.add_member(&kit.ada, "ada", "bob", "member").await;
    bob.get(CREDIT).await.expect(200);
    let request = json!({ "microCents": 500_000_000, "returnTo": RETURN_TO });
    bob.post(CHECKOUT, request).await.expect_error(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_without_a_credit_product_sells_none() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let request = |micro_cents: i64, return_to: &str| json!({ "microCents": micro_cents, "returnTo": return_to });
    ada.post(CHECKOUT, request(500_000_000, RETURN_TO)).await.expect_error(501, "billing_off");
    // Invalid fields take precedence, and all of them are named.
    let refused = ada.post(CHECKOUT, request(1, "https://evil.example/")).await;
    assert_eq!(fields(refused.expect_error(400, "bad_request")), ["returnTo", "microCents"]);
    ada.post(CHECKOUT, request(1, RETURN_TO)).await.expect_error(400, "bad_request");
    let refused = ada.put(AUTO_TOPUP, json!({ "enabled": true, "amountMicroCents": 1 })).await;
    assert_eq!(fields(refused.expect_error(400, "bad_request")), ["amountMicroCents", "thresholdMicroCents"]);
    let on = json!({ "enabled": true, "amountMicroCents": 500_000_000, "thresholdMicroCents": 1 });
    ada.put(AUTO_TOPUP, on).await.expect_error(409, "no_payment_method");
    ada.put(AUTO_TOPUP, json!({ "enabled": false })).await.expect(204);
    assert_eq!(ada.get(CREDIT).await.expect(200)["hasPaymentMethod"], false);
}

/// The organization pays for the pro plan, which saves its card.
#[tokio::test(flavor = "multi_thread")]
async fn missing_credit_product_is_the_reason_although_a_card_is_saved() {
    let kit = Kit::with(|config| config.billing.products.credit = None).await;
    let checkout = kit.ada.post("/v1/orgs/ada/billing/checkout", json!({ "returnTo": RETURN_TO })).await;
    assert_eq!(kit.provider.pay(checkout.expect(200)["url"].as_str().unwrap()), RETURN_TO);
    let request = json!({ "microCents": 500_000_000, "returnTo": RETURN_TO });
    let credit = kit.ada.post(CHECKOUT, request).await;
    let on = json!({ "enabled": true, "amountMicroCents": 500_000_000, "thresholdMicroCents": 100_000_000 });
    let top_up = kit.ada.put(AUTO_TOPUP, on).await;
    for error in [credit.expect_error(501, "billing_off"), top_up.expect_error(409, "no_payment_method")] {
        assert_eq!(error["message"], "AI credit is not sold on this installation");
    }
}

/// The payment of credit saves no card, and makes the organization a customer with a portal.
#[tokio::test(flavor = "multi_thread")]
async fn customer_of_credit_saves_a_card_in_the_portal() {
    let kit = Kit::start().await;
    let on = json!({ "enabled": true, "amountMicroCents": 500_000_000, "thresholdMicroCents": 100_000_000 });
    kit.ada.post("/v1/orgs/ada/billing/portal", json!({})).await.expect_error(404, "not_found");
    kit.buy().await;
    assert_eq!(kit.ada.get(CREDIT).await.expect(200)["hasPaymentMethod"], false);
    kit.ada.put(AUTO_TOPUP, on.clone()).await.expect_error(409, "no_payment_method");
    kit.save_card().await;
    assert_eq!(kit.ada.get(CREDIT).await.expect(200)["hasPaymentMethod"], true);
    assert_eq!(kit.ada.put(AUTO_TOPUP, on.clone()).await.expect(200)["autoTopup"], on);
}

#[tokio::test(flavor = "multi_thread")]
async fn credit_is_shown_while_the_provider_is_down() {
    let kit = Kit::start().await;
    kit.buy().await;
    kit.save_card().await;
    let on = json!({ "enabled": true, "amountMicroCents": 500_000_000, "thresholdMicroCents": 100_000_000 });
    let shown = kit.ada.put(AUTO_TOPUP, on.clone()).await.expect(200).clone();
    assert_eq!((&shown["autoTopup"], &shown["hasPaymentMethod"]), (&on, &json!(true)));
    for fault in [PaymentsFault::Unavailable, PaymentsFault::Html, PaymentsFault::TooManyRequests, PaymentsFault::Hang]
    {
        kit.provider.inject(Some(fault));
        let credit = tokio::time::timeout(PATIENCE, kit.ada.get(CREDIT)).await.unwrap();
        assert_eq!(credit.expect(200)["balanceMicroCents"], 500_000_000, "{fault:?}");
    }
    kit.provider.inject(Some(PaymentsFault::Html));
    let request = json!({ "microCents": 500_000_000, "returnTo": RETURN_TO });
    kit.ada.post(CHECKOUT, request).await.expect_error(502, "billing_unavailable");
    kit.ada.put(AUTO_TOPUP, on).await.expect_error(502, "billing_unavailable");
    // Auto top-up can be turned off without the provider.
    kit.ada.put(AUTO_TOPUP, json!({ "enabled": false })).await.expect(204);
    assert_eq!(kit.ada.get(CREDIT).await.expect(200)["autoTopup"]["enabled"], false);
    let audit = kit.app.db_audit("ada").await;
    let events: Vec<&str> = audit.iter().map(String::as_str).filter(|event| event.contains("autotopup")).collect();
    assert_eq!(events, ["ai.autotopup.on", "ai.autotopup.off"]);
}
