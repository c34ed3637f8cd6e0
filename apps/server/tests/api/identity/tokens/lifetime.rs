//! Revocation, expiry and loss of permissions.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ALL, acme, create_token, names, restricted, with_scopes};
use crate::support::{App, eventually, site, time};

#[tokio::test(flavor = "multi_thread")]
async fn revoked_token_is_rejected_immediately_by_every_server() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let (token, created) = create_token(&app, &ada, json!({ "name": "ci", "scopes": ["account:read"] })).await;
    let there = other.connect(&token);
    for _ in 0..3 {
        token.get("/v1/me").await.expect(200);
        there.get("/v1/me").await.expect(200);
    }
    let at = format!("/v1/me/tokens/{}", created["id"].as_str().unwrap());
    app.sign_in("bob").await.delete(&at).await.expect_error(404, "not_found");
    token.get("/v1/me").await.expect(200);
    ada.delete(&at).await.expect(204);
    there.get("/v1/me").await.expect_error(401, "unauthenticated");
    token.get("/v1/me").await.expect_error(401, "unauthenticated");
    there.get("/v1/me/tokens/current").await.expect_error(401, "unauthenticated");

    // The token stays listed, and a second revocation is a no-op.
    let revoked = ada.get("/v1/me/tokens").await.expect(200)["items"][0]["revokedAt"].clone();
    assert!(revoked.is_string());
    ada.delete(&at).await.expect(204);
    assert_eq!(ada.get("/v1/me/tokens").await.expect(200)["items"][0]["revokedAt"], revoked);
    ada.delete("/v1/me/tokens/pat_01h455vb4pex5vsknk084sn02q").await.expect_error(404, "not_found");
    let audit = app.db_rows("SELECT event, target FROM store.audit WHERE event LIKE 'token.%' ORDER BY id").await;
    let event = |event: &str| json!({ "event": event, "target": created["id"] });
    assert_eq!(audit, [event("token.create"), event("token.revoke")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_token_is_rejected_by_every_server() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let expiry = kernel::ClockRng::system().now().plus_seconds(3 * 24 * 3600);
    let body = json!({ "name": "ci", "scopes": ["account:read"], "expiresAt": expiry });
    let (token, created) = create_token(&app, &ada, body).await;
    assert_eq!(created["expiresAt"], json!(expiry));
    app.clock.advance_days(2);
    token.get("/v1/me").await.expect(200);
    other.connect(&token).get("/v1/me").await.expect(200);
    app.clock.advance_days(2);
    other.connect(&token).get("/v1/me").await.expect_error(401, "unauthenticated");
    token.get("/v1/me").await.expect_error(401, "unauthenticated");
    assert_eq!(names(&ada.get("/v1/me/tokens").await, "name"), ["ci"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_session_is_rejected_by_every_server() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let there = other.connect(&ada);
    there.get("/v1/me").await.expect(200);
    ada.send(Method::POST, "/v1/auth/logout", |request| request).await.expect(204);
    there.get("/v1/me").await.expect_error(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_loses_permissions_with_its_user_immediately() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = acme(&app).await;
    let bob = app.add_member(&ada, "acme", "bob", "admin").await;
    let token = with_scopes(&app, &bob, &ALL).await;
    let only_acme = restricted(&app, &bob, json!({ "org": "acme" })).await;
    let only_site = restricted(&app, &bob, json!({ "org": "acme", "projects": ["site"] })).await;
    let (member, deployments) =
        (format!("/v1/orgs/acme/members/{}", bob.user_id), "/v1/orgs/acme/projects/site/deployments");
    for caller in [&token, &only_acme] {
        caller.get("/v1/orgs/acme/invites").await.expect(200);
        other.connect(caller).get("/v1/orgs/acme/invites").await.expect(200);
    }
    only_site.upload(deployments, site("one")).await.expect(201);

    ada.put(&member, json!({ "role": "viewer" })).await.expect(200);
    for caller in [&token, &only_acme] {
        for at in [&app, &other] {
            let response = at.connect(caller).get("/v1/orgs/acme/invites").await;
            assert_eq!(response.expect_error(403, "forbidden")["details"], json!({ "required": "admin" }));
        }
        caller.get("/v1/orgs/acme/projects").await.expect(200);
    }
    other.connect(&only_site).upload(deployments, site("two")).await.expect_error(403, "forbidden");
    only_site.get("/v1/orgs/acme/projects/site").await.expect(200);

    ada.delete(&member).await.expect(204);
    for caller in [&token, &only_acme, &only_site] {
        for at in [&app, &other] {
            at.connect(caller).get("/v1/orgs/acme/projects").await.expect_error(403, "forbidden");
            at.connect(caller).get("/v1/orgs/acme/projects/site").await.expect_error(403, "forbidden");
        }
    }
    assert_eq!(names(&only_acme.get("/v1/orgs").await, "slug"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn last_use_of_a_token_is_recorded_every_ten_minutes() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    app.clock.stop();
    let token = with_scopes(&app, &ada, &["account:read"]).await;
    let last = async || ada.get("/v1/me/tokens").await.expect(200)["items"][0]["lastUsedAt"].clone();
    assert_eq!(last().await, json!(null));
    token.get("/v1/me").await.expect(200);
    let first = eventually("the first use is recorded", async || Some(last().await).filter(Value::is_string)).await;
    app.clock.advance(590);
    token.get("/v1/me").await.expect(200);
    app.clock.advance(20);
    token.get("/v1/me").await.expect(200);
    let second = eventually("a later use is recorded", async || Some(last().await).filter(|at| *at != first)).await;
    assert_eq!(time(&second), time(&first).plus_seconds(610));
}

#[tokio::test(flavor = "multi_thread")]
async fn live_tokens_of_a_user_are_limited() {
    let app = App::with(|config| config.abuse_limits.tokens_per_user = 2).await;
    let (ada, eve) = (app.sign_in("ada").await, app.sign_in("eve").await);
    let body = json!({ "name": "ci", "scopes": ["account:read"] });
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(create_token(&app, &ada, body.clone()).await.1["id"].as_str().unwrap().to_owned());
    }
    let refused = ada.post("/v1/me/tokens", body.clone()).await;
    assert_eq!(refused.expect_error(409, "token_limit")["details"], json!({ "limit": 2, "count": 2 }));
    create_token(&app, &eve, body.clone()).await;
    ada.delete(&format!("/v1/me/tokens/{}", ids[0])).await.expect(204);
    create_token(&app, &ada, body).await;
}
