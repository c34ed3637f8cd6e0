//! Object storage of a project.

use serde_json::{Value, json};
use server::config::CoreLink;

use super::{STORAGE, ada_with_project};
use crate::support::App;

const PROJECT: &str = "/v1/orgs/ada/projects/site";

#[tokio::test(flavor = "multi_thread")]
async fn storage_is_granted_and_revoked() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let status = |enabled: bool, prefix: &Value| json!({ "enabled": enabled, "prefix": prefix, "quotaBytes": 1_073_741_824_u64, "usedBytes": 0, "reportedAt": null });
    assert_eq!(ada.get(STORAGE).await.expect(200), &status(false, &Value::Null));
    ada.delete(STORAGE).await.expect(204);
    let granted = ada.post(STORAGE, json!({})).await.expect(200).clone();
    let prefix = &granted["prefix"];
    assert!(prefix.as_str().unwrap().starts_with("sto_"));
    assert_eq!(granted, status(true, prefix));
    // The body is ignored.
    let again = ada.send(reqwest::Method::POST, STORAGE, |request| request.body("anything")).await;
    assert_eq!(again.expect(200), &granted);
    assert_eq!(ada.get(STORAGE).await.expect(200), &granted);
    for _ in 0..2 {
        ada.delete(STORAGE).await.expect(204);
        assert_eq!(ada.get(STORAGE).await.expect(200), &status(false, prefix));
    }
    assert_eq!(ada.post(STORAGE, json!({})).await.expect(200), &granted);
    assert_eq!(app.db_audit("ada").await[1..], ["storage.grant", "storage.revoke", "storage.grant"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_shows_grants_next_to_declarations() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let bundle =
        crate::support::bundle(&[("svc.json", br#"{"storage":true,"ai":true}"#), ("assets/index.html", b"page")]);
    ada.upload("/v1/orgs/ada/projects/site/deployments", bundle).await.expect(201);
    let shown = async || {
        let detail = ada.get(PROJECT).await.expect(200)["resources"].clone();
        let overview = ada.get(&format!("{PROJECT}/overview")).await.expect(200)["resources"].clone();
        (detail, overview)
    };
    for granted in [false, true, false] {
        if granted {
            ada.post(STORAGE, json!({})).await.expect(200);
        } else {
            ada.delete(STORAGE).await.expect(204);
        }
        let (detail, overview) = shown().await;
        let expected = json!({ "auth": false, "database": false, "email": false, "ai": false, "storage": granted });
        assert_eq!(detail, expected);
        assert_eq!(overview["storage"], json!({ "declared": true, "granted": granted }));
        assert_eq!(overview["ai"], json!({ "declared": true, "granted": false }));
        assert_eq!(overview["email"], json!({ "declared": false, "granted": false }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_required() {
    let app = App::start().await;
    let ada = ada_with_project(&app).await;
    let member = app.add_member(&ada, "ada", "max", "member").await;
    let viewer = app.add_member(&ada, "ada", "vera", "viewer").await;
    viewer.get(STORAGE).await.expect(200);
    viewer.post(STORAGE, json!({})).await.expect_error(403, "forbidden");
    member.post(STORAGE, json!({})).await.expect(200);
    member.delete(STORAGE).await.expect_error(403, "forbidden");
    ada.get("/v1/orgs/ada/projects/other/storage").await.expect_error(404, "not_found");
    app.sign_in("eve").await.get(STORAGE).await.expect_error(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_needs_the_link_to_the_nodes() {
    let app = App::with(|config| config.core = CoreLink::Off).await;
    let ada = ada_with_project(&app).await;
    ada.get(STORAGE).await.expect_error(503, "no_core");
    ada.post(STORAGE, json!({})).await.expect_error(503, "no_core");
    ada.delete(STORAGE).await.expect_error(503, "no_core");
    // While the link is off, secrets are stored for the nodes.
    ada.put("/v1/orgs/ada/projects/site/secrets/API_KEY", json!({ "value": "x" })).await.expect(200);
    assert_eq!(app.db_audit("ada").await[1..], ["secret.set"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_follows_the_plan_and_the_limits() {
    let app = App::with(|config| {
        (config.limits.free.storage_bytes, config.limits.pro.storage_bytes) = (1000, 2000);
    })
    .await;
    let ada = ada_with_project(&app).await;
    assert_eq!(ada.post(STORAGE, json!({})).await.expect(200)["quotaBytes"], 1000);
    app.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await.unwrap();
    assert_eq!(ada.get(STORAGE).await.expect(200)["quotaBytes"], 2000);
}
