//! Authorization requests, which the dashboard sends with its user's session (contract section 3, "Authorize" and
//! "Errors at authorize").

use serde_json::{Value, json};

use super::kit::{Tokens, clients, operator, parameter, public, register};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn redirect_carries_code_state_and_issuer() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let redirect = client.redirect(&ada, json!({ "state": "a b&c=%20\u{e9}\"#" })).await;
    let names: Vec<_> = redirect.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["code", "state", "iss"]);
    assert_eq!(parameter(&redirect, "state").unwrap(), "a b&c=%20\u{e9}\"#");
    assert_eq!(parameter(&redirect, "iss").unwrap(), "http://127.0.0.1");
    let redirect = client.redirect(&ada, json!({})).await;
    assert_eq!(redirect.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["code", "iss"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn denial_and_wrong_scope_or_resource_are_redirected() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let mut new = public();
    new.scopes = Some("account:read project:write".parse().unwrap());
    let client = register(&app, new).await;
    for (change, error) in [
        (json!({ "approve": false }), "access_denied"),
        (json!({ "scope": "unknown" }), "invalid_scope"),
        (json!({ "scope": "account:read deploy" }), "invalid_scope"),
        (json!({ "scope": "account:read\tproject:read" }), "invalid_scope"),
        (json!({ "resource": "https://other.example" }), "invalid_target"),
        (json!({ "resource": "http://127.0.0.1/x" }), "invalid_target"),
        (json!({ "resource": "http://127.0.0.1//" }), "invalid_target"),
        (json!({ "resource": "http://127.0.0.1/?" }), "invalid_target"),
    ] {
        let mut change = change;
        change["state"] = json!("xyz");
        let redirect = client.redirect(&ada, change.clone()).await;
        assert_eq!(parameter(&redirect, "error").as_deref(), Some(error), "{change}");
        assert_eq!(parameter(&redirect, "code"), None, "{change}");
        assert_eq!(parameter(&redirect, "state").as_deref(), Some("xyz"), "{change}");
        assert_eq!(parameter(&redirect, "iss").as_deref(), Some("http://127.0.0.1"), "{change}");
    }
    assert!(app.db_rows("SELECT code_hash FROM oauth.codes").await.is_empty());
    // A scope is allowed if another scope of the client includes it. Repeated scopes count once, and an empty parameter
    // counts as absent.
    for (scope, granted) in [
        (json!("project:read"), "project:read"),
        (json!("account:read account:read"), "account:read"),
        (json!(""), "account:read project:write"),
        (Value::Null, "account:read project:write"),
    ] {
        let tokens = client.sign_in_with(&ada, json!({ "scope": scope })).await;
        assert_eq!(tokens.scope, granted, "{scope}");
    }
    // The origin with the path `/` is the same resource.
    for resource in ["http://127.0.0.1", "http://127.0.0.1/"] {
        let code = client.code_with(&ada, json!({ "resource": resource })).await;
        let tokens = Tokens::of(&client.exchange(&code).await);
        assert_eq!(tokens.claims()["aud"], "http://127.0.0.1", "{resource}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_never_redirected() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    for (change, field) in [
        (json!({ "client_id": "app_01h455vb4pex5vsknk084sn02q" }), "client_id"),
        (json!({ "client_id": "nonsense" }), "client_id"),
        (json!({ "client_id": null }), "client_id"),
        (json!({ "client_id": 1 }), "client_id"),
        (json!({ "redirect_uri": "https://evil.example/" }), "redirect_uri"),
        (json!({ "redirect_uri": null }), "redirect_uri"),
        (json!({ "redirect_uri": "" }), "redirect_uri"),
        (json!({ "redirect_uri": ["https://app.example/callback"] }), "redirect_uri"),
        (json!({ "response_type": "token" }), "response_type"),
        (json!({ "response_type": "code id_token" }), "response_type"),
        (json!({ "response_type": null }), "response_type"),
        (json!({ "code_challenge": null }), "code_challenge"),
        (json!({ "code_challenge": "" }), "code_challenge"),
        (json!({ "code_challenge": "a".repeat(42) }), "code_challenge"),
        (json!({ "code_challenge": "a".repeat(44) }), "code_challenge"),
        (json!({ "code_challenge": format!("{}=", "a".repeat(42)) }), "code_challenge"),
        (json!({ "code_challenge": format!("{}+", "a".repeat(42)) }), "code_challenge"),
        (json!({ "code_challenge_method": "plain" }), "code_challenge_method"),
        (json!({ "code_challenge_method": "s256" }), "code_challenge_method"),
        (json!({ "code_challenge_method": null }), "code_challenge_method"),
        (json!({ "approve": "true" }), "approve"),
        (json!({ "state": "a".repeat(5000) }), "state"),
        (json!({ "state": "a\u{0}b" }), "state"),
        (json!({ "unknown": "x" }), "unknown"),
    ] {
        let response = client.authorize(&ada, change.clone()).await;
        let body = response.expect_error(400, "bad_request");
        assert_eq!(body["details"]["fields"][0]["path"], field, "{change}: {body}");
        assert_eq!(response.header("location"), "", "{change}");
    }
    assert!(app.db_rows("SELECT code_hash FROM oauth.codes").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_session_can_approve_and_read_clients() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let all = ["account:read", "org:write", "project:write", "deploy", "dns:write"];
    let created = ada.post("/v1/me/tokens", json!({ "name": "ci", "scopes": all })).await.expect(201).clone();
    let personal = created["token"].as_str().unwrap();
    let path = format!("/v1/oauth/clients/{}", client.id);
    for (token, code) in
        [(personal, "session_required"), (&tokens.access, "session_required"), ("x", "unauthenticated")]
    {
        let caller = app.with_token(token);
        client.authorize(&caller, json!({})).await.expect_error(401, code);
        caller.get(&path).await.expect_error(401, code);
    }
    client.authorize(&app.anonymous(), json!({})).await.expect_error(401, "unauthenticated");
    app.anonymous().get(&path).await.expect_error(401, "unauthenticated");
    ada.post("/v1/auth/logout", json!({})).await;
    client.authorize(&ada, json!({})).await.expect_error(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_is_described_for_the_decision() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let mut new = public();
    new.name = "B\u{fc}cher <b>".to_owned();
    new.scopes = Some("deploy account:read".parse().unwrap());
    new.redirect_uris = [
        "https://a.example/1",
        "https://a.example/2",
        "http://127.0.0.1/cb",
        "com.example.app:/done",
        // The text after a private-use scheme is not a host.
        "com.example.app://bank.example/done",
        "com.example.other://bank.example/done",
    ]
    .map(str::to_owned)
    .to_vec();
    let client = register(&app, new).await;
    let path = format!("/v1/oauth/clients/{}", client.id);
    let expected = json!({
        "clientId": client.id, "name": "B\u{fc}cher <b>",
        "redirectHosts": ["a.example", "127.0.0.1", "com.example.app", "com.example.other"],
        "scopes": ["account:read", "deploy"],
    });
    assert_eq!(ada.get(&path).await.expect(200), &expected);
    clients(&app).remove(&operator(), client.id()).await.unwrap();
    for unknown in [path.as_str(), "/v1/oauth/clients/nonsense", "/v1/oauth/clients/usr_01h455vb4pex5vsknk084sn02q"] {
        ada.get(unknown).await.expect_error(404, "not_found");
    }
}

/// A parameter in the query of the redirect URI itself is kept.
#[tokio::test(flavor = "multi_thread")]
async fn query_of_the_redirect_uri_is_kept() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for uri in
        ["https://app.example/cb?tenant=1", "https://app.example/cb?", "com.example.app:/done", "https://app.example"]
    {
        let mut new = public();
        new.redirect_uris = vec![uri.to_owned()];
        let client = register(&app, new).await;
        let redirect = client.redirect(&ada, json!({ "state": "s" })).await;
        assert_eq!(parameter(&redirect, "tenant").as_deref(), uri.contains("tenant").then_some("1"), "{uri}");
        Tokens::of(&client.exchange(&parameter(&redirect, "code").unwrap()).await);
    }
}
