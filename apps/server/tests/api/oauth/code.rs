//! The exchange of authorization codes (RFC 6749 section 4.1.3, RFC 7636 section 4.6).

use serde_json::{Value, json};

use super::kit::{
    Authentication, Client, Tokens, VERIFIER, expect_oauth_error, expect_rejected, grants, public, register,
};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn exchange_creates_a_grant_with_its_tokens() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let code = client.code_with(&ada, json!({ "scope": "project:read account:read" })).await;
    assert!(code.starts_with("svc_oac_"));
    assert!(grants(&ada).await.is_empty(), "consent alone is not listed");
    let tokens = Tokens::of(&client.exchange(&code).await);
    assert!(tokens.refresh.starts_with("svc_ort_"));
    assert_eq!(tokens.scope, "account:read project:read");
    let claims = tokens.claims();
    let mut names: Vec<_> = claims.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["aud", "client_id", "exp", "iat", "iss", "jti", "scope", "sid", "sub"]);
    assert_eq!((&claims["iss"], &claims["aud"]), (&json!("http://127.0.0.1"), &json!("http://127.0.0.1")));
    assert_eq!((&claims["sub"], &claims["client_id"]), (&json!(ada.user_id), &json!(client.id)));
    assert_eq!(claims["scope"], "account:read project:read");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 900);
    assert_eq!(grants(&ada).await, [tokens.sid()]);
    assert_eq!(app.with_token(&tokens.access).get("/v1/me").await.expect(200)["id"], ada.user_id);
    let events = app
        .db_rows(
            "SELECT event, account_id IS NOT NULL AS concerns_a_user FROM store.audit WHERE event LIKE 'oauth.grant%'",
        )
        .await;
    assert_eq!(events, [json!({ "event": "oauth.grant.create", "concerns_a_user": true })]);
    // Each exchange has its own grant and token ids.
    let second = client.sign_in(&ada).await;
    assert_ne!(second.sid(), tokens.sid());
    assert_ne!(second.claims()["jti"], claims["jti"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn exchange_that_fails_a_check_consumes_nothing() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let other = register(&app, public()).await;
    let code = client.code(&ada).await;
    let at =
        |changed: &[char]| VERIFIER.chars().map(|c| if changed.contains(&c) { 'x' } else { c }).collect::<String>();
    for (name, value, error) in [
        ("code_verifier", at(&['d']), "invalid_grant"),
        ("code_verifier", VERIFIER.to_lowercase(), "invalid_grant"),
        ("code_verifier", format!("{VERIFIER}A"), "invalid_grant"),
        ("code_verifier", super::kit::CHALLENGE.to_owned(), "invalid_grant"),
        ("code_verifier", VERIFIER[..42].to_owned(), "invalid_grant"),
        ("code_verifier", "a".repeat(129), "invalid_grant"),
        ("code_verifier", format!("{VERIFIER}="), "invalid_grant"),
        ("redirect_uri", "https://app.example/callback/".to_owned(), "invalid_grant"),
        ("redirect_uri", "https://evil.example/".to_owned(), "invalid_grant"),
        ("resource", "https://other.example".to_owned(), "invalid_target"),
        ("resource", "http://127.0.0.1/x".to_owned(), "invalid_target"),
        ("code", format!("{code}A"), "invalid_grant"),
        ("code", "svc_oac_".to_owned(), "invalid_grant"),
        ("code", "x".to_owned(), "invalid_grant"),
        ("code", code.to_uppercase(), "invalid_grant"),
    ] {
        let response = client.exchange_with(&code, &[(name, &value)]).await;
        expect_oauth_error(&response, 400, error);
    }
    expect_oauth_error(&other.exchange(&code).await, 400, "invalid_grant");
    assert!(grants(&ada).await.is_empty());
    let tokens = Tokens::of(&client.exchange_with(&code, &[("resource", "http://127.0.0.1/")]).await);
    // These failures do not end the grant of a used code either.
    expect_oauth_error(&client.exchange_with(&code, &[("code_verifier", &at(&['d']))]).await, 400, "invalid_grant");
    expect_oauth_error(
        &client.exchange_with(&code, &[("redirect_uri", "https://x.example")]).await,
        400,
        "invalid_grant",
    );
    expect_oauth_error(&other.exchange(&code).await, 400, "invalid_grant");
    app.with_token(&tokens.access).get("/v1/me").await.expect(200);
    assert_eq!(grants(&ada).await, [tokens.sid()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_exchange_ends_the_grant_of_the_first() {
    let app = App::start().await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let bystander = client.sign_in(&ada).await;
    // The second use follows immediately, or after the lifetime of the code and a purge.
    for wait in [0, 61, 10 * 60] {
        let code = client.code(&ada).await;
        let tokens = Tokens::of(&client.exchange(&code).await);
        let tokens = Tokens::of(&client.refresh(&tokens.refresh).await);
        app.clock.advance(wait);
        expect_oauth_error(&client.exchange(&code).await, 400, "invalid_grant");
        expect_rejected(&app, &tokens.access).await;
        expect_oauth_error(&client.refresh(&tokens.refresh).await, 400, "invalid_grant");
        expect_oauth_error(&client.exchange(&code).await, 400, "invalid_grant");
        assert_eq!(grants(&ada).await, [bystander.sid()], "other grants remain");
    }
    Tokens::of(&client.refresh(&bystander.refresh).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_expire_after_a_minute() {
    let app = App::start().await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let (first, second) = (client.code(&ada).await, client.code(&ada).await);
    app.clock.advance(59);
    Tokens::of(&client.exchange(&first).await);
    app.clock.advance(1);
    expect_oauth_error(&client.exchange(&second).await, 400, "invalid_grant");
}

/// A client that is not authenticated does not trigger the detection of reuse.
#[tokio::test(flavor = "multi_thread")]
async fn reuse_without_authentication_has_no_effect() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let mut new = public();
    new.confidential = true;
    let client = register(&app, new).await;
    let code = client.code(&ada).await;
    let tokens = Tokens::of(&client.exchange(&code).await);
    let next = Tokens::of(&client.refresh(&tokens.refresh).await);
    let thief = Client { secret: Some("wrong".to_owned()), ..client.clone() };
    let anonymous = Client { secret: None, ..client.clone() };
    let other = register(&app, public()).await;
    for authentication in [Authentication::Basic, Authentication::Post] {
        let thief = Client { authentication, ..thief.clone() };
        let status = if authentication == Authentication::Basic { 401 } else { 400 };
        expect_oauth_error(&thief.exchange(&code).await, status, "invalid_client");
        expect_oauth_error(&thief.refresh(&tokens.refresh).await, status, "invalid_client");
        expect_oauth_error(&thief.revoke(&tokens.refresh).await, status, "invalid_client");
    }
    expect_oauth_error(&anonymous.exchange(&code).await, 400, "invalid_client");
    expect_oauth_error(&anonymous.refresh(&tokens.refresh).await, 400, "invalid_client");
    expect_oauth_error(&other.exchange(&code).await, 400, "invalid_grant");
    expect_oauth_error(&other.refresh(&tokens.refresh).await, 400, "invalid_grant");
    other.revoke(&tokens.refresh).await.expect(200);
    app.with_token(&next.access).get("/v1/me").await.expect(200);
    Tokens::of(&client.refresh(&next.refresh).await);
}

/// All servers share codes and grants.
#[tokio::test(flavor = "multi_thread")]
async fn code_of_one_server_is_exchanged_at_another() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let code = client.code(&ada).await;
    let tokens = Tokens::of(&client.at(&other).exchange(&code).await);
    let me: Value = app.with_token(&tokens.access).get("/v1/me").await.expect(200).clone();
    assert_eq!(me["id"], ada.user_id);
}
