//! An installation without a payments provider.

use serde_json::json;

use super::BILLING;
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_provider_the_limits_are_shown_and_nothing_can_be_bought() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let status = ada.get(BILLING).await.expect(200).clone();
    let shown = |name: &str| status[name].clone();
    assert_eq!(
        (shown("enabled"), shown("plan"), shown("status"), shown("periodEnd"), shown("cancelAtPeriodEnd")),
        (json!(false), json!("free"), json!(null), json!(null), json!(false))
    );
    let free = json!({
        "projects": 3, "bundleBytes": 52_428_800, "bundleUnpackedBytes": 262_144_000, "bundleEntries": 20_000,
        "storageBytes": 1_073_741_824, "mailsPerHour": 50, "mailLogDays": 30, "aiRequestsPerMinute": 60,
        "aiSpendPerDayMicroCents": 1_000_000_000, "databaseBytes": 1_073_741_824, "databaseTokens": 20,
        "backupDays": 7, "zones": 20, "zoneBytes": 8_388_608, "customHostnames": 100,
    });
    assert_eq!(status["limits"]["free"], free);
    assert_eq!(status["limits"]["pro"]["aiSpendPerDayMicroCents"], 100_000_000_000_i64);
    let return_to = json!({ "returnTo": "http://localhost:3000/billing" });
    for (action, body) in [
        ("checkout", return_to.clone()),
        ("portal", return_to),
        ("portal", json!({})),
        ("session", json!({})),
        ("cancel", json!({ "cancel": true })),
    ] {
        ada.post(&format!("{BILLING}/{action}"), body).await.expect_error(501, "billing_off");
    }
    assert_eq!(app.db_audit("ada").await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_validated() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for (action, body, field) in [
        ("checkout", json!({}), "returnTo"),
        ("checkout", json!({ "returnTo": 1 }), "returnTo"),
        ("checkout", json!({ "returnTo": "/billing" }), "returnTo"),
        ("checkout", json!({ "returnTo": "http://localhost:3000.evil.example/" }), "returnTo"),
        ("checkout", json!({ "returnTo": "https://localhost:3000/" }), "returnTo"),
        ("checkout", json!({ "returnTo": "http://user@localhost:3000/" }), "returnTo"),
        ("checkout", json!({ "returnTo": "javascript:alert(1)" }), "returnTo"),
        ("checkout", json!({ "returnTo": "http://localhost:3000/", "plan": "pro" }), "plan"),
        ("portal", json!({ "returnTo": "https://evil.example/" }), "returnTo"),
        ("cancel", json!({}), "cancel"),
        ("cancel", json!({ "cancel": "yes" }), "cancel"),
    ] {
        let refused = ada.post(&format!("{BILLING}/{action}"), body.clone()).await;
        let fields = &refused.expect_error(400, "bad_request")["details"]["fields"];
        assert_eq!(fields[0]["path"], field, "{action} {body}");
    }
}
