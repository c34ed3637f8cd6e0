//! Removal of a client by an operator.

use serde_json::json;

use super::kit::{clients, expect_oauth_error, expect_rejected, grants, operator, public, register};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn removal_ends_the_grants_of_the_client() {
    let app = App::start().await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let client = register(&app, public()).await;
    let other = register(&app, public()).await;
    let ended = [client.sign_in(&ada).await, client.sign_in(&bob).await];
    let kept = other.sign_in(&ada).await;
    let code = client.code(&ada).await;
    assert_eq!(clients(&app).remove(&operator(), client.id()).await.unwrap(), 2);
    for tokens in &ended {
        expect_rejected(&app, &tokens.access).await;
        expect_oauth_error(&client.refresh(&tokens.refresh).await, 400, "invalid_client");
    }
    expect_oauth_error(&client.exchange(&code).await, 400, "invalid_client");
    expect_oauth_error(&client.revoke(&ended[0].refresh).await, 400, "invalid_client");
    client.authorize(&ada, json!({})).await.expect_error(400, "bad_request");
    assert_eq!((grants(&ada).await, grants(&bob).await), (vec![kept.sid()], vec![]));
    app.with_token(&kept.access).get("/v1/me").await.expect(200);
    let events = app
        .db_rows("SELECT event, data->>'grants' AS grants FROM store.audit WHERE event LIKE 'oauth.client.remove'")
        .await;
    assert_eq!(events, [json!({ "event": "oauth.client.remove", "grants": "2" })]);
    clients(&app).remove(&operator(), client.id()).await.unwrap_err();
    // Only the rows of the other grant still exist. A background job deletes the refresh tokens of ended grants.
    for table in ["codes", "grants", "refresh_tokens JOIN oauth.grants ON grants.id = refresh_tokens.grant_id"] {
        let rows = app.db_rows(&format!("SELECT 1 AS one FROM oauth.{table}")).await;
        assert_eq!(rows.len(), 1, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_shows_no_secret() {
    let app = App::start().await;
    let mut new = public();
    new.confidential = true;
    let client = register(&app, new).await;
    let listed = clients(&app).list().await.unwrap();
    let text = serde_json::to_string(&listed).unwrap();
    assert!(text.contains(&client.id) && text.contains("\"confidential\":true"), "{text}");
    let secret = client.secret.unwrap();
    assert!(
        secret.starts_with("svc_ocs_") && secret.bytes().all(|c| c.is_ascii_alphanumeric() || b"._~-".contains(&c))
    );
    assert!(!text.contains(&secret));
    let audit = app.db_rows("SELECT data::text FROM store.audit").await;
    assert!(!serde_json::to_string(&audit).unwrap().contains(&secret));
}
