//! Revocation (RFC 7009, contract section 3).

use serde_json::json;

use super::kit::{Authentication, Client, Tokens, expect_oauth_error, expect_rejected, grants, public, register};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn every_token_ends_its_whole_grant() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let mut new = public();
    new.confidential = true;
    let confidential = register(&app, new).await;
    let with_post = Client { authentication: Authentication::Post, ..confidential.clone() };
    for client in [register(&app, public()).await, confidential, with_post] {
        let bystander = client.sign_in(&ada).await;
        for kind in ["access", "refresh", "rotated", "narrowed"] {
            let first = client.sign_in(&ada).await;
            let last = Tokens::of(&client.refresh_with(&first.refresh, &[("scope", "account:read")]).await);
            let token = match kind {
                "access" => &first.access,
                "refresh" => &last.refresh,
                "rotated" => &first.refresh,
                _ => &last.access,
            };
            // A wrong hint has no effect (RFC 7009 section 2.1).
            let parameters = [("token", token.as_str()), ("token_type_hint", "unknown")];
            let response = client.post("/oauth/revoke", &parameters).await;
            response.expect(200);
            assert!(response.bytes.is_empty(), "{response:?}");
            assert_eq!((response.header("cache-control"), response.header("pragma")), ("no-store", "no-cache"));
            for token in [&first.access, &last.access] {
                expect_rejected(&app, token).await;
            }
            expect_oauth_error(&client.refresh(&last.refresh).await, 400, "invalid_grant");
            assert_eq!(grants(&ada).await, [bystander.sid()], "{kind}");
            // Repeating it is not an error.
            client.revoke(token).await.expect(200);
        }
        client.revoke(&bystander.refresh).await.expect(200);
    }
    let events =
        app.db_rows("SELECT DISTINCT event FROM store.audit WHERE event LIKE 'oauth.grant.%' ORDER BY 1").await;
    assert_eq!(events, [json!({ "event": "oauth.grant.create" }), json!({ "event": "oauth.grant.revoke" })]);
    let counts = app
        .db_rows("SELECT event, count(*) FROM store.audit WHERE event LIKE 'oauth.grant.%' GROUP BY 1 ORDER BY 1")
        .await;
    assert_eq!(counts[0]["count"], counts[1]["count"], "one event per ended grant: {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tokens_and_those_of_other_clients_have_no_effect() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let other = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let code = client.code(&ada).await;
    for token in ["x", "a.b.c", "svc_ort_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", ada.token.as_deref().unwrap()] {
        client.revoke(token).await.expect(200);
    }
    for token in [&tokens.access, &tokens.refresh, &code] {
        other.revoke(token).await.expect(200);
    }
    // A forged token with the `sid` of the grant has no effect.
    let (signed, _) = tokens.access.rsplit_once('.').unwrap();
    client.revoke(&format!("{signed}.{}", "A".repeat(86))).await.expect(200);
    app.with_token(&tokens.access).get("/v1/me").await.expect(200);
    ada.get("/v1/me").await.expect(200);
    Tokens::of(&client.refresh(&tokens.refresh).await);
    Tokens::of(&client.exchange(&code).await);
    let ended = app.db_rows("SELECT id FROM store.audit WHERE event = 'oauth.grant.revoke'").await;
    assert!(ended.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_token_is_invalid() {
    let app = App::start().await;
    let client = register(&app, public()).await;
    expect_oauth_error(&client.post("/oauth/revoke", &[]).await, 400, "invalid_request");
    expect_oauth_error(&client.post("/oauth/revoke", &[("token", "")]).await, 400, "invalid_request");
}
