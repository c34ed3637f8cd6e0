//! The rate limits of the form endpoints (contract section 1, "Plan limits").

use reqwest::Method;
use serde_json::json;

use super::kit::{Client, Tokens, basic, expect_oauth_error, form, public, register};
use crate::support::{ApiResponse, App};

/// Starts a server with these limits and a stopped clock, so that no quota is replenished.
async fn limited(address: u32, client: u32) -> App {
    let app = App::with(|config| {
        config.gateway.rate_limits.oauth_address = address.try_into().unwrap();
        config.gateway.rate_limits.oauth_client = client.try_into().unwrap();
    })
    .await;
    app.clock.stop();
    app
}

#[track_caller]
fn expect_limited(response: &ApiResponse) {
    expect_oauth_error(response, 429, "temporarily_unavailable");
    let seconds: u32 = response.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
}

async fn refresh(client: &Client) -> ApiResponse {
    client.refresh("x").await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_has_a_quota_per_endpoint() {
    let app = limited(1000, 5).await;
    let mut new = public();
    new.device = true;
    let client = register(&app, new).await;
    let other = register(&app, public()).await;
    for _ in 0..5 {
        expect_oauth_error(&refresh(&client).await, 400, "invalid_grant");
    }
    expect_limited(&refresh(&client).await);
    // The other endpoints and other clients have their own quota.
    for _ in 0..5 {
        client.revoke("x").await.expect(200);
        client.post("/oauth/device", &[]).await.expect(200);
        expect_oauth_error(&refresh(&other).await, 400, "invalid_grant");
    }
    expect_limited(&client.revoke("x").await);
    expect_limited(&client.post("/oauth/device", &[]).await);
    expect_limited(&refresh(&other).await);
    // Another server shares the quota.
    let second = app.another().await;
    expect_limited(&refresh(&client.at(&second)).await);
    app.clock.advance(60);
    expect_oauth_error(&refresh(&client.at(&second)).await, 400, "invalid_grant");
}

/// Anyone can state the id of a public client. So each address has its own quota, and cannot block the users of the app.
#[tokio::test(flavor = "multi_thread")]
async fn each_address_has_a_quota_for_a_public_client() {
    let app = App::with(|config| {
        config.gateway.rate_limits.oauth_client = 5.try_into().unwrap();
        config.gateway.trusted_proxies = "127.0.0.0/8".parse().unwrap();
    })
    .await;
    app.clock.stop();
    let (public_client, mut new) = (register(&app, public()).await, public());
    new.confidential = true;
    let confidential = register(&app, new).await;
    let refresh_from = async |client: &Client, address: &str| {
        let authorization = client.secret.as_ref().map(|secret| basic(&client.id, secret));
        let mut parameters = vec![("grant_type", "refresh_token"), ("refresh_token", "x")];
        if authorization.is_none() {
            parameters.push(("client_id", &client.id));
        }
        let send = |request: reqwest::RequestBuilder| {
            let request = request.header("content-type", "application/x-www-form-urlencoded").body(form(&parameters));
            let request = request.header("x-forwarded-for", address);
            match &authorization {
                Some(value) => request.header("authorization", value),
                None => request,
            }
        };
        client.endpoints.send(Method::POST, "/oauth/token", send).await
    };
    for client in [&public_client, &confidential] {
        for n in 0..5 {
            let response = refresh_from(client, &format!("2001:db8::{n}")).await;
            expect_oauth_error(&response, 400, "invalid_grant");
        }
        // The addresses of one network count as one.
        expect_limited(&refresh_from(client, "2001:db8::9").await);
    }
    expect_oauth_error(&refresh_from(&public_client, "192.0.2.1").await, 400, "invalid_grant");
    expect_limited(&refresh_from(&confidential, "192.0.2.1").await);
}

/// Anyone can state the id of a public client. So the limit of undecided requests of devices applies to each address.
#[tokio::test(flavor = "multi_thread")]
async fn each_address_has_a_limit_of_undecided_device_requests() {
    let app = App::with(|config| {
        config.gateway.rate_limits.oauth_client = 1000.try_into().unwrap();
        config.gateway.rate_limits.oauth_address = 1000.try_into().unwrap();
        config.gateway.trusted_proxies = "127.0.0.0/8".parse().unwrap();
    })
    .await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let mut new = public();
    new.device = true;
    let client = register(&app, new).await;
    let start_from = async |address: &str| {
        let body = form(&[("scope", "account:read"), ("client_id", client.id.as_str())]);
        let send = |request: reqwest::RequestBuilder| {
            let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
            request.header("x-forwarded-for", address)
        };
        client.endpoints.send(Method::POST, "/oauth/device", send).await
    };
    let first = start_from("192.0.2.1").await.expect(200).clone();
    app.clock.advance(30);
    for _ in 1..50 {
        start_from("192.0.2.1").await.expect(200);
    }
    expect_limited(&start_from("192.0.2.1").await);
    // Other addresses have their own limit.
    start_from("192.0.2.2").await.expect(200);
    // A decided request does not count.
    let decision = json!({ "userCode": first["user_code"], "approve": false });
    ada.post("/v1/oauth/device/approve", decision).await.expect(204);
    start_from("192.0.2.1").await.expect(200);
    // The client learns when the first request expires.
    app.clock.advance(550);
    let refused = start_from("192.0.2.1").await;
    expect_limited(&refused);
    assert_eq!(refused.header("retry-after"), "50");
    app.clock.advance(50);
    start_from("192.0.2.1").await.expect(200);
    // The addresses of one IPv6 network count as one.
    for n in 0..50 {
        start_from(&format!("2001:db8::{n:x}")).await.expect(200);
    }
    expect_limited(&start_from("2001:db8::ffff").await);
}

/// A failed authentication counts only against the address, so that an attacker cannot exhaust the quota of a client.
#[tokio::test(flavor = "multi_thread")]
async fn failed_authentication_counts_against_the_address() {
    let app = limited(20, 5).await;
    let mut new = public();
    new.confidential = true;
    let client = register(&app, new).await;
    let attacker = Client { secret: Some("wrong".to_owned()), ..client.clone() };
    for _ in 0..15 {
        expect_oauth_error(&refresh(&attacker).await, 401, "invalid_client");
    }
    for _ in 0..5 {
        expect_oauth_error(&refresh(&client).await, 400, "invalid_grant");
    }
    // The quota of the address is now exhausted, even for the client itself.
    for _ in 0..3 {
        expect_limited(&refresh(&client).await);
        expect_limited(&refresh(&attacker).await);
    }
    client.revoke("x").await.expect(200);
    app.clock.advance(60);
    expect_oauth_error(&refresh(&client).await, 400, "invalid_grant");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_count_against_the_address() {
    let app = limited(5, 1000).await;
    for _ in 0..5 {
        let response = app.anonymous().post("/oauth/token", json!({})).await;
        expect_oauth_error(&response, 415, "invalid_request");
    }
    expect_limited(&app.anonymous().post("/oauth/token", json!({})).await);
}

/// A rejected request uses up neither a code nor a token.
#[tokio::test(flavor = "multi_thread")]
async fn limited_requests_consume_nothing() {
    let app = limited(1000, 2).await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let (code, other) = (client.code(&ada).await, client.code(&ada).await);
    let tokens = Tokens::of(&client.exchange(&code).await);
    expect_oauth_error(&refresh(&client).await, 400, "invalid_grant");
    expect_limited(&client.refresh(&tokens.refresh).await);
    expect_limited(&client.exchange(&code).await);
    expect_limited(&client.exchange(&other).await);
    app.clock.advance(30);
    Tokens::of(&client.refresh(&tokens.refresh).await);
}

/// Each grant of a connected app has the quota of a credential. A new access token does not renew the quota.
#[tokio::test(flavor = "multi_thread")]
async fn access_tokens_of_a_grant_share_a_quota() {
    let app = App::with(|config| config.gateway.rate_limits.credential = 10.try_into().unwrap()).await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let (first, other) = (client.sign_in(&ada).await, client.sign_in(&ada).await);
    app.clock.stop();
    let second = Tokens::of(&client.refresh(&first.refresh).await);
    for token in [&first.access, &second.access] {
        for _ in 0..5 {
            app.with_token(token).get("/v1/me").await.expect(200);
        }
    }
    for token in [&first.access, &second.access] {
        app.with_token(token).get("/v1/me").await.expect_error(429, "rate_limited");
    }
    app.with_token(&other.access).get("/v1/me").await.expect(200);
}
