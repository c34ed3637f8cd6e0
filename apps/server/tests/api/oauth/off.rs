//! An installation without `SVC_OAUTH_ISSUER`.

use serde_json::json;

use super::kit::{expect_oauth_error, public, register};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn connected_apps_can_be_off() {
    let app = App::with(|config| config.oauth = None).await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    for path in ["/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource"] {
        app.anonymous().get(path).await.expect_error(503, "oauth_not_configured");
    }
    let keys = app.anonymous().get("/.well-known/jwks.json").await;
    assert_eq!(keys.expect(200), &json!({ "keys": [] }));
    client.authorize(&ada, json!({})).await.expect_error(503, "oauth_not_configured");
    ada.get(&format!("/v1/oauth/clients/{}", client.id)).await.expect_error(503, "oauth_not_configured");
    for response in [client.exchange("x").await, client.revoke("x").await, client.post("/oauth/device", &[]).await] {
        expect_oauth_error(&response, 503, "temporarily_unavailable");
    }
    // A user can still see that there are no grants.
    assert_eq!(ada.get("/v1/oauth/grants").await.expect(200)["items"], json!([]));
    for token in ["a.b.c", "eyJ0eXAiOiJhdCtqd3QifQ.e30.AA"] {
        app.with_token(token).get("/v1/me").await.expect_error(401, "unauthenticated");
    }
}
