//! The grants of a user, and the account's audit log.

use serde_json::{Value, json};

use super::kit::{Tokens, expect_oauth_error, expect_rejected, grants, public, register};
use crate::support::{App, eventually, time};

#[tokio::test(flavor = "multi_thread")]
async fn listing_shows_live_grants_of_the_caller() {
    let app = App::start().await;
    app.clock.stop();
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let client = register(&app, public()).await;
    let tokens = client.sign_in_with(&ada, json!({ "scope": "deploy account:read" })).await;
    let grant = ada.get("/v1/oauth/grants").await.expect(200)["items"][0].clone();
    let expected = json!({
        "sid": tokens.sid(), "clientId": client.id, "clientName": "Example app",
        "scopes": ["account:read", "deploy"],
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&grant[name], value, "{name}");
    }
    assert_eq!(grant.as_object().unwrap().len(), 6, "{grant}");
    assert_eq!(time(&grant["createdAt"]), app.clock.clock_rng().now());
    // The use of an access token or a refresh token is recorded.
    let used = async || ada.get("/v1/oauth/grants").await.expect(200)["items"][0]["lastUsedAt"].clone();
    let mut last = grant["lastUsedAt"].clone();
    for _ in 0..2 {
        app.clock.advance(300);
        app.with_token(&tokens.access).get("/v1/me").await.expect(200);
        last = eventually("the use is recorded", async || Some(used().await).filter(|at| *at != last)).await;
        assert_eq!(time(&last), app.clock.clock_rng().now());
    }
    app.clock.advance(120);
    Tokens::of(&client.refresh(&tokens.refresh).await);
    assert_eq!(time(&used().await), app.clock.clock_rng().now());
    assert!(grants(&bob).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_has_pages() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let mut created = Vec::new();
    for _ in 0..5 {
        created.push(client.sign_in(&ada).await.sid());
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/oauth/grants?limit=2".to_owned());
    loop {
        let page = ada.get(&path).await.expect(200).clone();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|grant| grant["sid"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/oauth/grants?limit=2&cursor={cursor}");
    }
    seen.sort_unstable();
    created.sort_unstable();
    assert_eq!(seen, created);
    for query in ["limit=0", "limit=x", "cursor=x"] {
        ada.get(&format!("/v1/oauth/grants?{query}")).await.expect_error(400, "bad_request");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_ends_the_grant_on_the_next_request() {
    let app = App::start().await;
    let other_server = app.another().await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let client = register(&app, public()).await;
    let (ended, kept) = (client.sign_in(&ada).await, client.sign_in(&ada).await);
    let path = format!("/v1/oauth/grants/{}", ended.sid());
    for server in [&app, &other_server] {
        server.with_token(&ended.access).get("/v1/me").await.expect(200);
    }
    // For the caller, a grant of another user does not exist.
    bob.delete(&path).await.expect_error(404, "not_found");
    for invalid in ["nonsense", "gnt_x", "ses_01h455vb4pex5vsknk084sn02q", "gnt_01h455vb4pex5vsknk084sn02q"] {
        ada.delete(&format!("/v1/oauth/grants/{invalid}")).await.expect_error(404, "not_found");
    }
    let response = ada.delete(&path).await;
    assert_eq!((response.status, response.bytes.len()), (204, 0));
    for server in [&app, &other_server] {
        expect_rejected(server, &ended.access).await;
    }
    expect_oauth_error(&client.refresh(&ended.refresh).await, 400, "invalid_grant");
    ada.delete(&path).await.expect_error(404, "not_found");
    assert_eq!(grants(&ada).await, [kept.sid()]);
    app.with_token(&kept.access).get("/v1/me").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_session_can_manage_grants() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let body = json!({ "name": "ci", "scopes": ["account:read", "org:write"] });
    let personal = ada.post("/v1/me/tokens", body).await.expect(201)["token"].clone();
    let path = format!("/v1/oauth/grants/{}", tokens.sid());
    for token in [personal.as_str().unwrap(), &tokens.access] {
        let caller = app.with_token(token);
        caller.get("/v1/oauth/grants").await.expect_error(401, "session_required");
        caller.delete(&path).await.expect_error(401, "session_required");
        caller.get("/v1/me/audit").await.expect_error(401, "session_required");
        // Connected apps and tokens cannot manage other credentials either.
        caller.get("/v1/me/sessions").await.expect_error(401, "session_required");
        caller.post("/v1/me/tokens", json!({ "name": "x", "scopes": [] })).await.expect_error(401, "session_required");
    }
    assert_eq!(grants(&ada).await, [tokens.sid()]);
}

/// The log of the account contains the events of its grants, tokens and sessions, and no events of others.
#[tokio::test(flavor = "multi_thread")]
async fn audit_log_of_the_account_lists_its_events() {
    let app = App::start().await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    client.sign_in(&bob).await;
    ada.delete(&format!("/v1/oauth/grants/{}", tokens.sid())).await.expect(204);
    ada.post("/v1/me/tokens", json!({ "name": "ci", "scopes": ["deploy"] })).await.expect(201);
    let page = ada.get("/v1/me/audit").await.expect(200).clone();
    let events: Vec<&Value> = page["items"].as_array().unwrap().iter().collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    for name in ["oauth.grant.create", "oauth.grant.revoke"] {
        let of_grant: Vec<_> = events.iter().filter(|event| event["event"] == name).collect();
        assert_eq!(of_grant.len(), 1, "{names:?}");
        assert!(serde_json::to_string(&of_grant[0]).unwrap().contains(&tokens.sid()), "{of_grant:?}");
    }
    assert!(names.iter().any(|name| name.contains("token")), "{names:?}");
    let text = page.to_string();
    assert!(!text.contains(&tokens.refresh) && !text.contains(&tokens.access) && !text.contains(&bob.user_id));
    let first = ada.get("/v1/me/audit?limit=1").await.expect(200).clone();
    assert_eq!(first["items"][0], page["items"][0], "newest first");
    assert!(first["nextCursor"].is_string());
}
