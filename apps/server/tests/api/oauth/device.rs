//! The device flow (RFC 8628).

use oauth::NewClient;
use serde_json::json;

use super::kit::{Client, DEVICE_CODE, Tokens, expect_oauth_error, expect_rejected, grants, public, register};
use crate::support::{ApiResponse, App, Caller};

fn device_client() -> NewClient {
    NewClient { device: true, redirect_uris: Vec::new(), name: "svc".to_owned(), ..public() }
}

/// A started request of a device.
struct Device {
    client: Client,
    code: String,
    user_code: String,
}

impl Device {
    async fn start(client: &Client, scope: &str) -> Self {
        let body = client.post("/oauth/device", &[("scope", scope)]).await.expect(200).clone();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        Self { client: client.clone(), code: text("device_code"), user_code: text("user_code") }
    }

    async fn poll(&self) -> ApiResponse {
        let parameters = [("grant_type", DEVICE_CODE), ("device_code", self.code.as_str())];
        self.client.post("/oauth/token", &parameters).await
    }

    async fn decide(&self, user: &Caller, approve: bool) -> ApiResponse {
        let body = json!({ "userCode": self.user_code, "approve": approve });
        user.post("/v1/oauth/device/approve", body).await
    }
}

/// Returns an app with a stopped clock, a user and a client of the device flow.
async fn setup() -> (App, Caller, Client) {
    let app = App::start().await;
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let client = register(&app, device_client()).await;
    (app, ada, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn device_receives_tokens_after_the_approval() {
    let (app, ada, client) = setup().await;
    let response = client.post("/oauth/device", &[("scope", "account:read")]).await;
    let body = response.expect(200).clone();
    assert_eq!((response.header("cache-control"), response.header("pragma")), ("no-store", "no-cache"));
    assert_eq!((&body["expires_in"], &body["interval"]), (&json!(600), &json!(5)));
    assert_eq!(body["verification_uri"], "http://localhost:3000/oauth/device");
    let user_code = body["user_code"].as_str().unwrap().to_owned();
    let complete = format!("http://localhost:3000/oauth/device?user_code={user_code}");
    assert_eq!(body["verification_uri_complete"], complete);
    let is_letter = |c: char| "BCDFGHJKLMNPQRSTVWXZ".contains(c);
    assert!(user_code.chars().enumerate().all(|(at, c)| if at == 4 { c == '-' } else { is_letter(c) }), "{user_code}");
    assert_eq!(user_code.len(), 9);
    let device = Device {
        client: client.clone(),
        code: body["device_code"].as_str().unwrap().to_owned(),
        user_code: user_code.clone(),
    };
    assert!(device.code.starts_with("svc_odc_"));

    expect_oauth_error(&device.poll().await, 400, "authorization_pending");
    // The user may type the code in any form.
    for typed in
        [user_code.clone(), user_code.to_lowercase(), user_code.replace('-', ""), user_code.replace('-', "%20")]
    {
        let consent = ada.get(&format!("/v1/oauth/device/{typed}")).await.expect(200).clone();
        assert_eq!(consent["userCode"], user_code, "{typed}");
        assert_eq!((&consent["clientId"], &consent["name"]), (&json!(client.id), &json!("svc")));
        assert_eq!(consent["scopes"], json!(["account:read"]));
        assert!(consent["expiresAt"].is_string());
    }
    let typed = json!({ "userCode": user_code.to_lowercase().replace('-', " ") });
    assert_eq!(ada.post("/v1/oauth/device/approve", typed).await.status, 204);
    assert!(grants(&ada).await.is_empty(), "approval alone is not listed");
    app.clock.advance(5);
    let tokens = Tokens::of(&device.poll().await);
    assert_eq!(tokens.scope, "account:read");
    assert_eq!(grants(&ada).await, [tokens.sid()]);
    assert_eq!(app.with_token(&tokens.access).get("/v1/me").await.expect(200)["id"], ada.user_id);
    let next = Tokens::of(&client.refresh(&tokens.refresh).await);
    // A second use of a device code ends its grant, like that of a code.
    app.clock.advance(5);
    expect_oauth_error(&device.poll().await, 400, "invalid_grant");
    expect_rejected(&app, &next.access).await;
    assert!(grants(&ada).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_for_another_resource_are_refused_and_the_code_stays_valid() {
    let (_app, ada, client) = setup().await;
    let device = Device::start(&client, "account:read").await;
    device.decide(&ada, true).await.expect(204);
    let parameters =
        [("grant_type", DEVICE_CODE), ("device_code", device.code.as_str()), ("resource", "https://other.example")];
    expect_oauth_error(&client.post("/oauth/token", &parameters).await, 400, "invalid_target");
    device.poll().await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn fast_polls_are_slowed_down() {
    let (app, ada, client) = setup().await;
    let device = Device::start(&client, "account:read").await;
    expect_oauth_error(&device.poll().await, 400, "authorization_pending");
    // A poll may be a second early.
    app.clock.advance(4);
    expect_oauth_error(&device.poll().await, 400, "authorization_pending");
    app.clock.advance(3);
    expect_oauth_error(&device.poll().await, 400, "slow_down");
    // The interval is 10 seconds now.
    app.clock.advance(8);
    expect_oauth_error(&device.poll().await, 400, "slow_down");
    app.clock.advance(14);
    expect_oauth_error(&device.poll().await, 400, "authorization_pending");
    assert_eq!(device.decide(&ada, true).await.status, 204);
    app.clock.advance(15);
    Tokens::of(&device.poll().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn interval_of_a_device_has_an_upper_bound() {
    let (app, ada, client) = setup().await;
    let device = Device::start(&client, "account:read").await;
    expect_oauth_error(&device.poll().await, 400, "authorization_pending");
    for _ in 0..20 {
        expect_oauth_error(&device.poll().await, 400, "slow_down");
    }
    app.clock.advance(60);
    expect_oauth_error(&device.poll().await, 400, "authorization_pending");
    app.clock.advance(58);
    expect_oauth_error(&device.poll().await, 400, "slow_down");
    assert_eq!(device.decide(&ada, true).await.status, 204);
    Tokens::of(&device.poll().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_and_expired_requests_yield_nothing() {
    let (app, ada, client) = setup().await;
    let denied = Device::start(&client, "account:read").await;
    assert_eq!(denied.decide(&ada, false).await.status, 204);
    expect_oauth_error(&denied.poll().await, 400, "access_denied");
    // The decision is final.
    denied.decide(&ada, true).await.expect_error(404, "not_found");
    ada.get(&format!("/v1/oauth/device/{}", denied.user_code)).await.expect_error(404, "not_found");
    let (pending, approved) = (Device::start(&client, "").await, Device::start(&client, "").await);
    assert_eq!(approved.decide(&ada, true).await.status, 204);
    app.clock.advance(600);
    expect_oauth_error(&pending.poll().await, 400, "expired_token");
    expect_oauth_error(&approved.poll().await, 400, "expired_token");
    pending.decide(&ada, true).await.expect_error(404, "not_found");
    assert!(grants(&ada).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn device_codes_belong_to_their_client() {
    let (app, ada, client) = setup().await;
    let other = register(&app, device_client()).await;
    let device = Device::start(&client, "account:read").await;
    assert_eq!(device.decide(&ada, true).await.status, 204);
    let stolen = Device { client: other, code: device.code.clone(), user_code: String::new() };
    expect_oauth_error(&stolen.poll().await, 400, "invalid_grant");
    for unknown in [format!("svc_odc_{}", "A".repeat(43)), "x".to_owned()] {
        let device = Device { client: client.clone(), code: unknown, user_code: String::new() };
        expect_oauth_error(&device.poll().await, 400, "invalid_grant");
    }
    let tokens = Tokens::of(&device.poll().await);
    app.clock.advance(5);
    expect_oauth_error(&stolen.poll().await, 400, "invalid_grant");
    app.with_token(&tokens.access).get("/v1/me").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_checked() {
    let (app, ada, client) = setup().await;
    expect_oauth_error(&client.post("/oauth/device", &[("scope", "unknown")]).await, 400, "invalid_scope");
    let web = register(&app, public()).await;
    expect_oauth_error(&web.post("/oauth/device", &[("scope", "deploy")]).await, 400, "unauthorized_client");
    let device = Device::start(&client, "account:read").await;
    for (body, status) in [
        (json!({}), 400),
        (json!({ "userCode": "BCDF-GHJK" }), 404),
        (json!({ "userCode": "AAAA-AAAA" }), 404),
        (json!({ "userCode": "short" }), 400),
        (json!({ "userCode": 1 }), 400),
        (json!({ "userCode": device.user_code, "approve": "yes" }), 400),
        (json!({ "userCode": device.user_code, "unknown": 1 }), 400),
    ] {
        assert_eq!(ada.post("/v1/oauth/device/approve", body.clone()).await.status, status, "{body}");
    }
    for unknown in ["BCDF-GHJK", "x", "AAAA-AAAA"] {
        ada.get(&format!("/v1/oauth/device/{unknown}")).await.expect_error(404, "not_found");
    }
    // Only a login session can decide.
    let tokens = client_tokens(&app, &ada).await;
    let app_caller = app.with_token(&tokens.access);
    device.decide(&app_caller, true).await.expect_error(401, "session_required");
    let path = format!("/v1/oauth/device/{}", device.user_code);
    app_caller.get(&path).await.expect_error(401, "session_required");
    device.decide(&app.anonymous(), true).await.expect_error(401, "unauthenticated");
    expect_oauth_error(&device.poll().await, 400, "authorization_pending");
}

async fn client_tokens(app: &App, user: &Caller) -> Tokens {
    register(app, public()).await.sign_in(user).await
}

#[tokio::test(flavor = "multi_thread")]
async fn device_flow_can_be_off() {
    let app = App::with(|config| config.oauth.as_mut().unwrap().device_verification_uri = None).await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, device_client()).await;
    let started = client.post("/oauth/device", &[("scope", "deploy")]).await;
    let polled = client.post("/oauth/token", &[("grant_type", DEVICE_CODE), ("device_code", "x")]).await;
    for response in [started, polled] {
        expect_oauth_error(&response, 400, "unauthorized_client");
    }
    ada.get("/v1/oauth/device/BCDF-GHJK").await.expect_error(404, "not_found");
    let body = json!({ "userCode": "BCDF-GHJK" });
    ada.post("/v1/oauth/device/approve", body).await.expect_error(404, "not_found");
}
