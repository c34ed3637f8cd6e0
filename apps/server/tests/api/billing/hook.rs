//! The webhook of the payments provider over HTTP.

use reqwest::header::HeaderValue;
use reqwest::{Method, RequestBuilder};
use sandbox::PAYMENTS_WEBHOOK_SECRET;
use serde_json::{Value, json};
use webhooks::VerifyingKeys;

use super::{BILLING, HOOK, deliver, org_id, sign, subscription};
use crate::databases::kit::Kit;
use crate::support::{ApiResponse, App};

async fn send(app: &App, build: impl FnOnce(RequestBuilder) -> RequestBuilder) -> ApiResponse {
    app.anonymous().send(Method::POST, HOOK, build).await
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_changes_the_plan_and_its_limits_apply_to_the_next_request() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let org = org_id(&ada).await;
    for name in ["one", "two", "three"] {
        ada.post("/v1/orgs/ada/projects", json!({ "name": name })).await.expect(201);
    }
    ada.post("/v1/orgs/ada/projects", json!({ "name": "four" })).await.expect_error(409, "project_limit");
    let pro = subscription(&org, "active", 1);
    assert_eq!(deliver(&app, "msg_1", &pro).await.expect(200), &json!({ "applied": true }));
    ada.post("/v1/orgs/ada/projects", json!({ "name": "four" })).await.expect(201);
    let status = ada.get(BILLING).await.expect(200).clone();
    assert_eq!(
        (&status["plan"], &status["status"], &status["periodEnd"], &status["cancelAtPeriodEnd"]),
        (&json!("pro"), &json!("active"), &json!("2030-02-01T00:00:00.000Z"), &json!(false))
    );
    assert_eq!(ada.get("/v1/orgs").await.expect(200)["items"][0]["plan"], "pro");
    for id in ["msg_1", "msg_2"] {
        assert_eq!(deliver(&app, id, &pro).await.expect(200), &json!({ "applied": false }));
    }
    // A downgrade deletes nothing, but resources above a limit cannot grow.
    let ended = subscription(&org, "canceled", 2);
    assert_eq!(deliver(&app, "msg_3", &ended).await.expect(200), &json!({ "applied": true }));
    assert_eq!(ada.get("/v1/orgs/ada/projects").await.expect(200)["items"].as_array().unwrap().len(), 4);
    ada.post("/v1/orgs/ada/projects", json!({ "name": "five" })).await.expect_error(409, "project_limit");
    let status = ada.get(BILLING).await.expect(200).clone();
    assert_eq!((&status["plan"], &status["status"]), (&json!("free"), &json!("canceled")));
    let events = app.db_audit("ada").await;
    assert_eq!(events.iter().filter(|event| *event == "billing.plan").count(), 2, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_are_kept_as_on_the_pro_plan_for_30_days_after_its_end() {
    let kit = Kit::enabled().await;
    let org = org_id(&kit.ada).await;
    assert_eq!(kit.part().await["backupDays"], 7);
    deliver(&kit.app, "msg_1", &subscription(&org, "active", 1)).await.expect(200);
    assert_eq!(kit.part().await["backupDays"], 30);
    deliver(&kit.app, "msg_2", &subscription(&org, "canceled", 2)).await.expect(200);
    kit.app.clock.advance_days(29);
    let part = kit.part().await;
    assert_eq!((&part["sizeBytes"], &part["backupDays"]), (&json!(1_073_741_824_u64), &json!(30)));
    kit.app.clock.advance_days(1);
    assert_eq!(kit.part().await["backupDays"], 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_signature_are_required_and_errors_are_bare() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let body = subscription(&org_id(&ada).await, "active", 1).to_string();
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let signed = |request: RequestBuilder| sign(&app, PAYMENTS_WEBHOOK_SECRET, "msg_1", &body, request);
    let bare = |response: &ApiResponse, status: u16, what: &str| {
        assert_eq!((response.status, &response.body), (status, &Value::Null), "{what}: {response:?}");
    };
    for name in names {
        let with = |value: Option<&'static [u8]>| {
            move |request: RequestBuilder| {
                let (client, request) = request.build_split();
                let mut request = request.unwrap();
                request.headers_mut().remove(name);
                if let Some(value) = value {
                    request.headers_mut().insert(name, HeaderValue::from_bytes(value).unwrap());
                }
                RequestBuilder::from_parts(client, request)
            }
        };
        bare(&send(&app, |request| with(None)(signed(request))).await, 400, name);
        bare(&send(&app, |request| with(Some(b""))(signed(request))).await, 400, name);
        bare(&send(&app, |request| signed(request).header(name, "x")).await, 400, name);
        for value in [&b"1"[..], "\u{e9}".as_bytes(), b"\xe9"] {
            bare(&send(&app, |request| with(Some(value))(signed(request))).await, 403, name);
        }
    }
    bare(&send(&app, |request| sign(&app, "another", "msg_1", &body, request)).await, 403, "secret");
    bare(&send(&app, |request| signed(request).body(format!("{body} "))).await, 403, "other bytes");
    for malformed in ["", "{", "[]", "{\"type\":\"subscription.active\",\"data\":{}}"] {
        let response = send(&app, |request| sign(&app, PAYMENTS_WEBHOOK_SECRET, "msg_1", malformed, request)).await;
        bare(&response, 400, malformed);
    }
    let large = format!("{{\"type\":\"{}\"}}", "x".repeat(2 << 20));
    bare(&send(&app, |request| sign(&app, PAYMENTS_WEBHOOK_SECRET, "msg_1", &large, request)).await, 413, "large");
    assert_eq!(ada.get(BILLING).await.expect(200)["plan"], "free");
    // None of the rejected requests used up the id.
    assert_eq!(send(&app, signed).await.expect(200)["applied"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_can_be_rotated_and_may_have_either_form() {
    let secrets = "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0,polar_whs_new";
    let app = App::with(|config| config.billing.webhook_keys = Some(VerifyingKeys::parse(secrets).unwrap())).await;
    let ada = app.sign_in("ada").await;
    let org = org_id(&ada).await;
    for (at, (secret, plan)) in (1..).zip([("whsec_c2VjcmV0IG9mIHRoZSB0ZXN0", "active"), ("polar_whs_new", "unpaid")]) {
        let body = subscription(&org, plan, at).to_string();
        let response = send(&app, |request| sign(&app, secret, &format!("msg_{at}"), &body, request)).await;
        assert_eq!(response.expect(200)["applied"], true, "{secret}");
    }
    let off = App::with(|config| config.billing.webhook_keys = None).await;
    for response in [
        send(&off, |request| sign(&off, "any", "msg_1", "{}", request)).await,
        send(&off, |request| request.body("{}")).await,
    ] {
        assert_eq!((response.status, &response.body), (501, &Value::Null));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_deliveries_are_not_rate_limited() {
    let app = App::with(|config| {
        config.gateway.rate_limits.sign_in = std::num::NonZeroU32::MIN;
        config.gateway.rate_limits.credential = std::num::NonZeroU32::MIN;
    })
    .await;
    let event = json!({ "type": "customer.updated", "timestamp": "2026-01-01T00:00:00Z", "data": {} });
    for number in 0..50 {
        deliver(&app, &format!("msg_{number}"), &event).await.expect(200);
    }
    let rows = app.db_rows("SELECT count(*) FROM billing.webhooks").await;
    assert_eq!(rows[0]["count"], 50);
}
