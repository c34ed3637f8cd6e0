//! Rate limits that two servers on one database share. Most tests stop the clock, so that the quota is not replenished.

use ::chaos::{NetworkFault, Proxy};
use futures_util::future::join_all;
use kernel::Secret;
use serde_json::json;

use crate::support::{ApiResponse, App, Caller, TestDatabase, eventually};

/// Starts two servers with these limits.
async fn two_servers(sign_in: u32, credential: u32) -> (App, App) {
    let app = App::with(|config| {
        config.gateway.rate_limits.sign_in = sign_in.try_into().unwrap();
        config.gateway.rate_limits.credential = credential.try_into().unwrap();
    })
    .await;
    app.clock.stop();
    let other = app.another().await;
    (app, other)
}

async fn login(app: &App) -> ApiResponse {
    app.anonymous().post("/v1/auth/dev/login", json!({ "subject": "ada" })).await
}

/// Sends requests to each server, and returns the number of admitted ones. Most requests are concurrent. The last ones
/// are sequential, so that no permits remain reserved by another server.
async fn admitted(servers: &[&App], caller: &Caller, each: usize) -> usize {
    let callers: Vec<Caller> = servers.iter().map(|server| server.connect(caller)).collect();
    let call = async |caller: &Caller| match caller.get("/v1/orgs").await {
        response if response.status == 200 => 1,
        response => {
            response.expect_error(429, "rate_limited");
            0
        }
    };
    let mut admitted = 0;
    for _ in 0..each.div_ceil(8) {
        let burst = callers.iter().flat_map(|caller| std::iter::repeat_n(caller, 8));
        admitted += join_all(burst.map(&call)).await.into_iter().sum::<usize>();
    }
    for _ in 0..20 {
        for caller in &callers {
            admitted += call(caller).await;
        }
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_limit_is_shared_by_all_servers() {
    let (app, other) = two_servers(30, 600).await;
    for n in 0..30 {
        login(if n % 2 == 0 { &app } else { &other }).await.expect(200);
    }
    for server in [&app, &other] {
        let response = login(server).await;
        response.expect_error(429, "rate_limited");
        assert_eq!(response.header("retry-after"), "2");
        assert_eq!(response.header("ratelimit-policy"), "\"sign-in\";q=30;w=60");
        assert_eq!(response.header("ratelimit"), "\"sign-in\";r=0;t=60");
    }
    // The quota grows by one every two seconds.
    app.clock.advance(2);
    assert_eq!((login(&other).await.status, login(&app).await.status), (200, 429));
    app.clock.advance(60);
    for n in 0..30 {
        login(if n % 3 == 0 { &app } else { &other }).await.expect(200);
    }
    login(&app).await.expect_error(429, "rate_limited");
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_limit_is_shared_by_all_servers() {
    for limit in [60, 180] {
        let (app, other) = two_servers(600, limit).await;
        let ada = app.sign_in("ada").await;
        let each = usize::try_from(limit).unwrap();
        assert_eq!(admitted(&[&app, &other], &ada, each).await, each);
        for server in [&app, &other] {
            let response = server.connect(&ada).get("/v1/me").await;
            response.expect_error(429, "rate_limited");
            assert_eq!(response.header("retry-after"), "1");
            assert_eq!(response.header("ratelimit-policy"), format!("\"general\";q={limit};w=60"));
            assert!(response.header("ratelimit").starts_with("\"general\";r=0;t="), "{response:?}");
        }
        // Another credential of the same user has its own quota.
        app.sign_in("ada").await.get("/v1/me").await.expect(200);
        // Half of the window replenishes half of the quota.
        app.clock.advance(30);
        assert_eq!(admitted(&[&app, &other], &ada, each).await, each / 2);
        app.clock.advance(3600);
        assert_eq!(admitted(&[&app, &other], &ada, each).await, each);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remaining_quota_decreases_with_each_response() {
    let (app, other) = two_servers(600, 600).await;
    let ada = app.sign_in("ada").await;
    let mut last = i64::MAX;
    for n in 0..40 {
        let response = if n < 20 { &app } else { &other };
        let response = response.connect(&ada).get("/v1/me").await;
        response.expect(200);
        let state = response.header("ratelimit").to_owned();
        let remaining: i64 = state.split(";r=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
        // Permits that one server has reserved count as used on the other server.
        assert!(remaining < last && (590 - n..600 - n).contains(&remaining), "{n}: {state}");
        last = remaining;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remaining_quota_does_not_exceed_the_quota() {
    let (app, _other) = two_servers(600, 600).await;
    let ada = app.sign_in("ada").await;
    ada.get("/v1/me").await.expect(200);
    // The bucket is full again, while the server still has the permits that it reserved.
    app.clock.advance(3);
    let response = ada.get("/v1/me").await;
    response.expect(200);
    assert_eq!(response.header("ratelimit"), "\"general\";r=600;t=0");
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_permits_of_a_server_expire() {
    let (app, other) = two_servers(600, 600).await;
    let ada = app.sign_in("ada").await;
    // A server reserves ten permits at a time. Nine remain reserved for ten seconds.
    ada.get("/v1/me").await.expect(200);
    assert_eq!(admitted(&[&other], &ada, 600).await, 590);
    assert_eq!(admitted(&[&app], &ada, 20).await, 9);
    app.clock.advance(60);
    ada.get("/v1/me").await.expect(200);
    app.clock.advance(20);
    assert_eq!(admitted(&[&app, &other], &ada, 600).await, 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_previews_have_their_own_limit() {
    let (app, other) = two_servers(5, 600).await;
    let preview = async |app: &App| app.anonymous().get(&format!("/v1/invites/svc_inv_{}", "A".repeat(43))).await;
    for n in 0..5 {
        let response = preview(if n % 2 == 0 { &app } else { &other }).await;
        response.expect_error(404, "not_found");
        assert_eq!(response.header("ratelimit-policy"), "\"preview\";q=5;w=60");
    }
    for server in [&app, &other] {
        preview(server).await.expect_error(429, "rate_limited");
    }
    // The limits of previews and sign-ins are independent.
    for _ in 0..5 {
        login(&app).await.expect(200);
    }
    login(&other).await.expect_error(429, "rate_limited");
    let keys = app.db_rows("SELECT key FROM store.rate_limits ORDER BY key").await;
    assert_eq!(keys, [json!({ "key": "preview 127.0.0.1" }), json!({ "key": "sign-in 127.0.0.1" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_credentials_share_one_limit_and_create_no_rows() {
    let (app, other) = two_servers(600, 60).await;
    let mut refused = 0;
    for n in 0..70 {
        let kind = if n % 3 == 0 { "svc_ses_" } else { "svc_pat_" };
        let token = format!("{kind}{:A>43}", format!("{n}x"));
        let server = if n % 2 == 0 { &app } else { &other };
        match server.with_token(&token).get("/v1/me").await {
            response if response.status == 429 => refused += 1,
            response => drop(response.expect_error(401, "unauthenticated").clone()),
        }
    }
    assert_eq!(refused, 10);
    let keys = app.db_rows("SELECT key FROM store.rate_limits").await;
    assert_eq!(keys, [json!({ "key": "general 127.0.0.1" })]);
    // A valid credential is not affected.
    app.sign_in("ada").await.get("/v1/me").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_within_the_quota_are_admitted() {
    let (app, _) = two_servers(600, 600).await;
    let ada = app.sign_in("ada").await;
    // A server reserves ten permits at a time. There are more requests than reservations that the quota allows.
    for response in join_all((0..150).map(|_| ada.get("/v1/orgs"))).await {
        response.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_that_was_ahead_does_not_block_callers() {
    let (app, _) = two_servers(5, 600).await;
    login(&app).await.expect(200);
    app.db_execute("UPDATE store.rate_limits SET reset_at = reset_at + 3600 * 1000000::bigint").await.unwrap();
    login(&app).await.expect_error(429, "rate_limited");
    app.clock.advance(13);
    login(&app).await.expect(200);
    // The clock of this process goes back, after it remembered that the bucket is empty.
    login(&app).await.expect_error(429, "rate_limited");
    app.clock.advance(-3600);
    let refused = login(&app).await;
    refused.expect_error(429, "rate_limited");
    assert_eq!((refused.header("retry-after"), refused.header("ratelimit")), ("12", "\"sign-in\";r=0;t=60"));
    app.clock.advance(13);
    let admitted = login(&app).await;
    assert_eq!((admitted.status, admitted.header("ratelimit")), (200, "\"sign-in\";r=0;t=59"));
}

#[tokio::test(flavor = "multi_thread")]
async fn user_limit_is_shared_by_all_credentials_and_servers() {
    let app = App::with(|config| {
        config.gateway.rate_limits.credential = 120.try_into().unwrap();
        config.gateway.rate_limits.user = Some(180.try_into().unwrap());
    })
    .await;
    app.clock.stop();
    let other = app.another().await;
    let servers = [&app, &other];
    let session = app.sign_in("ada").await;
    let body = json!({ "name": "ci", "scopes": ["account:read", "org:read"] });
    let created = session.post("/v1/me/tokens", body).await.expect(201).clone();
    let token = app.with_token(created["token"].as_str().unwrap());
    let third = app.sign_in("ada").await;
    // The creation of the token counts, too.
    assert_eq!(admitted(&servers, &session, 120).await, 119);
    assert_eq!(admitted(&servers, &token, 120).await, 60);
    assert_eq!(admitted(&servers, &third, 20).await, 0);
    for server in servers {
        let response = server.connect(&third).get("/v1/me").await;
        response.expect_error(429, "rate_limited");
        assert_eq!(response.header("retry-after"), "1");
        assert_eq!(response.header("ratelimit-policy"), "\"user\";q=180;w=60");
        assert_eq!(response.header("ratelimit"), "\"user\";r=0;t=60");
    }
    // Each user has a bucket.
    app.sign_in("eve").await.get("/v1/me").await.expect(200);
    // Half of the window replenishes half of the quota.
    app.clock.advance(30);
    assert_eq!(admitted(&servers, &third, 120).await, 90);
    assert_eq!(admitted(&servers, &token, 20).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_many_credentials_reserve_no_permits_in_vain() {
    let app = App::with(|config| config.gateway.rate_limits.user = Some(600.try_into().unwrap())).await;
    app.clock.stop();
    let mut credentials = Vec::new();
    for _ in 0..30 {
        credentials.push(app.sign_in("ada").await);
    }
    let other = app.another().await;
    for server in [&app, &other] {
        for credential in &credentials {
            server.connect(credential).get("/v1/me").await.expect(200);
        }
    }
    // A server reserves ten permits of the user at a time, not ten for each credential.
    let response = credentials[0].get("/v1/me").await;
    let remaining = response.header("ratelimit").split(";r=").nth(1).unwrap().split(';').next().unwrap();
    assert!(remaining.parse::<i64>().unwrap() > 600 - 61 - 20, "{response:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_credential_of_an_address_over_its_rate_costs_no_statement() {
    let database = TestDatabase::create().await;
    let (proxy, url) = Proxy::start_for_postgres(&database.url()).await.unwrap();
    let app = App::with(move |config| {
        config.database = store::Config::new(Secret::new(url), "test");
        config.gateway.rate_limits.credential = 60.try_into().unwrap();
    })
    .await;
    app.clock.stop();
    let (ada, used) = (app.sign_in("ada").await, app.sign_in("ada").await);
    used.get("/v1/me").await.expect(200);
    used.post("/v1/auth/logout", json!(null)).await.expect(204);
    let unknown = |n: usize| app.with_token(&format!("svc_pat_{:A>43}", format!("{n}x")));
    for n in 0..60 {
        unknown(n).get("/v1/me").await.expect_error(401, "unauthenticated");
    }
    unknown(60).get("/v1/me").await.expect_error(429, "rate_limited");
    // The process no longer remembers the ended credential as valid, so the limit of the address applies to it.
    used.get("/v1/me").await.expect_error(429, "rate_limited");
    // If Postgres is unavailable, a request that runs a statement fails with 503.
    proxy.set_fault(NetworkFault::Disconnect);
    for n in 61..70 {
        let response = unknown(n).get("/v1/me").await;
        response.expect_error(429, "rate_limited");
        assert_eq!(response.header("retry-after"), "1");
    }
    used.get("/v1/me").await.expect_error(429, "rate_limited");
    app.anonymous().get("/v1/me").await.expect_error(429, "rate_limited");
    // A new session is remembered as valid before its first use, so only its check in Postgres fails.
    ada.get("/v1/me").await.expect_error(503, "unavailable");
    proxy.set_fault(NetworkFault::None);
    eventually("the session is accepted", async || (ada.get("/v1/me").await.status == 200).then_some(())).await;
    // The quota of the address is replenished.
    app.clock.advance(1);
    unknown(70).get("/v1/me").await.expect_error(401, "unauthenticated");
}
