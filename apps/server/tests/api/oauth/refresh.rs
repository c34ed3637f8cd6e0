//! Refreshes: rotation, reuse detection, narrowing and the grace window (contract section 3).

use serde_json::json;

use super::kit::{Tokens, expect_oauth_error, expect_rejected, grants, public, register};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn refresh_rotates_the_token_of_the_same_grant() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let first = client.sign_in(&ada).await;
    let mut last = first.clone();
    for _ in 0..5 {
        let next = Tokens::of(&client.refresh(&last.refresh).await);
        assert_ne!(next.refresh, last.refresh);
        assert_ne!(next.claims()["jti"], last.claims()["jti"]);
        assert_eq!((next.sid(), &next.scope), (first.sid(), &first.scope));
        last = next;
    }
    // Access tokens remain valid until they expire.
    for tokens in [&first, &last] {
        app.with_token(&tokens.access).get("/v1/me").await.expect(200);
    }
    assert_eq!(grants(&ada).await, [first.sid()]);
    // A refresh changes no permission, so it writes no audit event.
    let events = app.db_rows("SELECT event FROM store.audit WHERE event LIKE 'oauth.grant%'").await;
    assert_eq!(events, [json!({ "event": "oauth.grant.create" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reuse_ends_exactly_that_grant() {
    let app = App::start().await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let other = register(&app, public()).await;
    let bystanders = [client.sign_in(&ada).await, other.sign_in(&ada).await];
    // How many times the grant is refreshed before the first refresh token is reused, and after how many seconds.
    for (rotations, seconds) in [(1, 0), (1, 61), (2, 0), (5, 600), (1, 3600)] {
        let reused = client.sign_in(&ada).await;
        let mut last = reused.clone();
        for _ in 0..rotations {
            last = Tokens::of(&client.refresh(&last.refresh).await);
        }
        app.clock.advance(seconds);
        expect_oauth_error(&client.refresh(&reused.refresh).await, 400, "invalid_grant");
        for token in [&reused.access, &last.access] {
            expect_rejected(&app, token).await;
        }
        expect_oauth_error(&client.refresh(&last.refresh).await, 400, "invalid_grant");
        let mut live = grants(&ada).await;
        live.sort_unstable();
        let mut expected = bystanders.each_ref().map(Tokens::sid);
        expected.sort_unstable();
        assert_eq!(live, expected);
    }
    Tokens::of(&client.refresh(&bystanders[0].refresh).await);
    Tokens::of(&other.refresh(&bystanders[1].refresh).await);
    let ended = app.db_rows("SELECT event FROM store.audit WHERE event = 'oauth.grant.revoke'").await;
    assert_eq!(ended.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn narrowing_applies_to_one_access_token() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in_with(&ada, json!({ "scope": "org:write account:read" })).await;
    let narrowed = Tokens::of(&client.refresh_with(&tokens.refresh, &[("scope", "org:read")]).await);
    assert_eq!((narrowed.scope.as_str(), &narrowed.claims()["scope"]), ("org:read", &json!("org:read")));
    let app_caller = app.with_token(&narrowed.access);
    app_caller.get("/v1/me").await.expect_error(403, "insufficient_scope");
    app_caller.get("/v1/orgs").await.expect(200);
    app_caller.post("/v1/orgs", json!({ "slug": "new" })).await.expect_error(403, "insufficient_scope");
    // The next refresh can request the full grant again, or another part of it.
    let full = Tokens::of(&client.refresh(&narrowed.refresh).await);
    assert_eq!(full.scope, "account:read org:write");
    let part = Tokens::of(&client.refresh_with(&full.refresh, &[("scope", "account:read account:read")]).await);
    assert_eq!(part.scope, "account:read");
    // A request for more scopes than those of the grant does not use up the token.
    for (scope, error) in [
        ("account:read deploy", "invalid_scope"),
        ("unknown", "invalid_scope"),
        ("ACCOUNT:READ", "invalid_scope"),
        ("account:read,org:read", "invalid_scope"),
    ] {
        expect_oauth_error(&client.refresh_with(&part.refresh, &[("scope", scope)]).await, 400, error);
    }
    let wrong = [("resource", "https://other.example")];
    expect_oauth_error(&client.refresh_with(&part.refresh, &wrong).await, 400, "invalid_target");
    let part = Tokens::of(&client.refresh_with(&part.refresh, &[("resource", "http://127.0.0.1/")]).await);
    let last = client.refresh_with(&part.refresh, &[("resource", "http://127.0.0.1")]).await;
    assert_eq!(Tokens::of(&last).scope, "account:read org:write");
    let listed = ada.get("/v1/oauth/grants").await.expect(200).clone();
    assert_eq!(listed["items"][0]["scopes"], json!(["account:read", "org:write"]));
}

/// A stolen token is detected even if the thief asks for a wrong scope.
#[tokio::test(flavor = "multi_thread")]
async fn reuse_takes_precedence_over_a_wrong_scope() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in_with(&ada, json!({ "scope": "account:read" })).await;
    Tokens::of(&client.refresh(&tokens.refresh).await);
    expect_oauth_error(&client.refresh_with(&tokens.refresh, &[("scope", "deploy")]).await, 400, "invalid_grant");
    assert!(grants(&ada).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tokens_and_tokens_of_other_kinds_are_rejected() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let unknown = format!("svc_ort_{}", "A".repeat(43));
    let code = client.code(&ada).await;
    for token in [unknown.as_str(), "x", &tokens.access, &code, ada.token.as_deref().unwrap(), "svc_ort_\u{e9}"] {
        expect_oauth_error(&client.refresh(token).await, 400, "invalid_grant");
    }
    expect_oauth_error(&client.exchange(&tokens.refresh).await, 400, "invalid_grant");
    for token in [&tokens.refresh, &code] {
        app.with_token(token).get("/v1/me").await.expect_error(401, "unauthenticated");
    }
    Tokens::of(&client.refresh(&tokens.refresh).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_expire_60_days_after_their_last_use() {
    let app = App::start().await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let mut tokens = client.sign_in(&ada).await;
    for _ in 0..3 {
        app.clock.advance_days(59);
        tokens = Tokens::of(&client.refresh(&tokens.refresh).await);
    }
    app.clock.advance_days(60);
    expect_oauth_error(&client.refresh(&tokens.refresh).await, 400, "invalid_grant");
    let ada = app.sign_in("ada").await;
    assert!(grants(&ada).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn access_tokens_expire_after_15_minutes() {
    let app = App::start().await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    app.clock.advance(899);
    app.with_token(&tokens.access).get("/v1/me").await.expect(200);
    app.clock.advance(1);
    expect_rejected(&app, &tokens.access).await;
    let next = Tokens::of(&client.refresh(&tokens.refresh).await);
    app.with_token(&next.access).get("/v1/me").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_refresh_within_the_grace_returns_the_same_successor() {
    let app = App::with(|config| config.oauth.as_mut().unwrap().refresh_grace_seconds = 30).await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let other = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let next = Tokens::of(&client.refresh(&tokens.refresh).await);
    app.clock.advance(29);
    let repeated = Tokens::of(&client.refresh(&tokens.refresh).await);
    assert_eq!(repeated.refresh, next.refresh);
    assert_eq!(repeated.sid(), next.sid());
    app.with_token(&repeated.access).get("/v1/me").await.expect(200);
    // Another client cannot use the grace period.
    expect_oauth_error(&other.refresh(&tokens.refresh).await, 400, "invalid_grant");
    // After the grace period, the repetition counts as reuse.
    app.clock.advance(2);
    expect_oauth_error(&client.refresh(&tokens.refresh).await, 400, "invalid_grant");
    expect_rejected(&app, &repeated.access).await;

    // Once the successor is used, a repetition counts as reuse even within the grace period.
    let tokens = client.sign_in(&ada).await;
    let next = Tokens::of(&client.refresh(&tokens.refresh).await);
    let last = Tokens::of(&client.refresh(&next.refresh).await);
    expect_oauth_error(&client.refresh(&tokens.refresh).await, 400, "invalid_grant");
    expect_rejected(&app, &last.access).await;
    assert!(grants(&ada).await.is_empty());
}
