//! Sign-in, account and sessions.

use serde_json::json;

use crate::support::{App, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn first_login_creates_a_user_and_a_personal_organization() {
    let app = App::start().await;
    let body = json!({ "subject": "ada", "email": "ada@example.org", "name": "Ada" });
    let session = app.anonymous().post("/v1/auth/dev/login", body).await;
    let session = session.expect(200);
    assert!(session["token"].as_str().unwrap().starts_with("svc_ses_"));
    assert_eq!(session["subject"], "ada");

    let me = app.with_token(session["token"].as_str().unwrap()).get("/v1/me").await;
    let me = me.expect(200);
    assert_eq!(me["id"], session["userId"]);
    assert_eq!((&me["provider"], &me["email"], &me["name"]), (&json!("dev"), &json!("ada@example.org"), &json!("Ada")));
    assert_eq!(me["avatarUrl"], json!(null));
    let org = &me["orgs"][0];
    assert_eq!((&org["slug"], &org["role"], &org["plan"]), (&json!("ada"), &json!("admin"), &json!("free")));
    assert_eq!((&org["personal"], &org["projectLimit"]), (&json!(true), &json!(3)));

    let again = app.sign_in("ada").await;
    assert_eq!(json!(again.user_id), session["userId"]);
    assert_eq!(again.get("/v1/me").await.expect(200)["orgs"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_or_invalid_slug_gets_a_suffix() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "bob" })).await.expect(201);
    let (longest, long, cut) = ("y".repeat(40), "x".repeat(64), format!("{}-2", "x".repeat(31)));
    for (subject, slug) in
        [("bob", "bob-2"), ("www", "www-2"), ("a", "a-2"), ("-----", "user"), (&longest, &longest), (&long, &cut)]
    {
        let me = app.sign_in(subject).await.get("/v1/me").await;
        assert_eq!(me.expect(200)["orgs"][0]["slug"], json!(slug), "{subject}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_logins_create_one_user() {
    for round in 0..3 {
        let app = App::with(|config| config.database.connections = 48).await;
        let subject = format!("ada-{round}");
        let logins = (0..20).map(|_| app.sign_in(&subject));
        let callers = futures_util::future::join_all(logins).await;
        assert!(callers.iter().all(|caller| caller.user_id == callers[0].user_id));
        let counts = "SELECT (SELECT count(*) FROM identity.users) AS users, (SELECT count(*) FROM orgs.orgs) AS orgs, \
             (SELECT count(*) FROM orgs.members) AS members, (SELECT count(*) FROM identity.sessions) AS sessions";
        assert_eq!(app.db_rows(counts).await, [json!({ "users": 1, "orgs": 1, "members": 1, "sessions": 20 })]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_at_logout_and_at_expiry() {
    let app = App::start().await;
    let (first, second) = (app.sign_in("ada").await, app.sign_in("ada").await);
    first.send(reqwest::Method::POST, "/v1/auth/logout", |request| request).await.expect(204);
    let rejected = first.get("/v1/me").await;
    rejected.expect_error(401, "unauthenticated");
    assert_eq!(rejected.header("www-authenticate"), "Bearer error=\"invalid_token\"");
    second.get("/v1/me").await.expect(200);
    app.clock.advance_days(29);
    second.get("/v1/me").await.expect(200);
    app.clock.advance_days(2);
    second.get("/v1/me").await.expect_error(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn development_login_is_disabled_without_the_setting() {
    let app = App::with(|config| config.gateway.sign_ins.dev = false).await;
    app.anonymous().post("/v1/auth/dev/login", json!({ "subject": "ada" })).await.expect_error(404, "not_found");
    assert!(app.document.operations().all(|(_, path, _)| path != "/v1/auth/dev/login"));
}

#[tokio::test(flavor = "multi_thread")]
async fn database_contains_no_token() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let token = ada.token.clone().unwrap();
    let rows = app.db_rows("SELECT s.*, encode(token_hash, 'escape') AS escaped FROM identity.sessions s").await;
    assert!(!serde_json::to_string(&rows).unwrap().contains(&token));
    let audit = app.db_rows("SELECT * FROM store.audit").await;
    assert!(!serde_json::to_string(&audit).unwrap().contains(&token));
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_ins_are_rate_limited_per_address() {
    let app = App::with(|config| config.gateway.rate_limits.sign_in = 5u32.try_into().unwrap()).await;
    app.clock.stop();
    for left in (0..5).rev() {
        let response = app.anonymous().post("/v1/auth/dev/login", json!({ "subject": "ada" })).await;
        response.expect(200);
        assert_eq!(response.header("ratelimit-policy"), "\"sign-in\";q=5;w=60");
        assert!(response.header("ratelimit").starts_with(&format!("\"sign-in\";r={left};t=")), "{response:?}");
    }
    let response = app.anonymous().post("/v1/auth/dev/login", json!({ "subject": "ada" })).await;
    response.expect_error(429, "rate_limited");
    assert_eq!(response.header("retry-after"), "12");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_credential_has_its_own_rate_limit() {
    let app = App::with(|config| config.gateway.rate_limits.credential = 3u32.try_into().unwrap()).await;
    app.clock.stop();
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    for _ in 0..3 {
        ada.get("/v1/me").await.expect(200);
    }
    ada.get("/v1/me").await.expect_error(429, "rate_limited");
    bob.get("/v1/me").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_requests_share_one_rate_limit_per_address() {
    let app = App::with(|config| config.gateway.rate_limits.credential = 2u32.try_into().unwrap()).await;
    app.clock.stop();
    for _ in 0..2 {
        app.anonymous().get("/v1/me").await.expect_error(401, "unauthenticated");
    }
    app.anonymous().get("/v1/me").await.expect_error(429, "rate_limited");
    app.with_token("nonsense").get("/v1/me").await.expect_error(429, "rate_limited");
    let unknown = format!("svc_ses_{}", "A".repeat(43));
    app.with_token(&unknown).get("/v1/me").await.expect_error(429, "rate_limited");
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_address_is_trusted_only_from_trusted_proxies() {
    let login = async |app: &App, forwarded: &str| {
        let body = json!({ "subject": "ada" });
        let build = |request: reqwest::RequestBuilder| request.header("x-forwarded-for", forwarded).json(&body);
        app.anonymous().send(reqwest::Method::POST, "/v1/auth/dev/login", build).await.status
    };
    let untrusting = App::with(|config| config.gateway.rate_limits.sign_in = 1u32.try_into().unwrap()).await;
    assert_eq!((login(&untrusting, "192.0.2.1").await, login(&untrusting, "192.0.2.2").await), (200, 429));
    let trusting = App::with(|config| {
        config.gateway.rate_limits.sign_in = 1u32.try_into().unwrap();
        config.gateway.trusted_proxies = "127.0.0.0/8, 10.0.0.0/8".parse().unwrap();
    })
    .await;
    assert_eq!((login(&trusting, "192.0.2.1").await, login(&trusting, "192.0.2.2").await), (200, 200));
    // Entries to the left of the trusted proxies' entries are ignored.
    assert_eq!(login(&trusting, "203.0.113.9, 192.0.2.1, 10.0.0.7").await, 429);
    assert_eq!(login(&trusting, "203.0.113.9, 192.0.2.1:4711").await, 429);
    // An unparsable entry ends the evaluation, so entries to its left are ignored.
    assert_eq!(
        (login(&trusting, "203.0.113.8, unknown").await, login(&trusting, "203.0.113.7, unknown").await),
        (200, 429)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn user_lists_and_ends_own_sessions() {
    let app = App::start().await;
    let (old, current, bob) = (app.sign_in("ada").await, app.sign_in("ada").await, app.sign_in("bob").await);
    let list = async |caller: &crate::support::Caller| {
        let page = caller.get("/v1/me/sessions").await.expect(200).clone();
        page["items"].as_array().unwrap().clone()
    };
    let sessions = list(&current).await;
    let current_flags: Vec<bool> = sessions.iter().map(|session| session["current"].as_bool().unwrap()).collect();
    assert_eq!(current_flags, [true, false]);
    assert_eq!(sessions[0]["lastUsedAt"], json!(null));

    // The last use is recorded asynchronously.
    app.clock.advance_days(1);
    current.get("/v1/me").await.expect(200);
    let is_recorded = async || list(&current).await[0]["lastUsedAt"].is_string().then_some(());
    eventually("the last use is recorded", is_recorded).await;

    let at = format!("/v1/me/sessions/{}", sessions[1]["id"].as_str().unwrap());
    bob.delete(&at).await.expect_error(404, "not_found");
    current.delete(&at).await.expect(204);
    current.delete(&at).await.expect_error(404, "not_found");
    old.get("/v1/me").await.expect_error(401, "unauthenticated");
    assert_eq!(list(&current).await.len(), 1);
    // Expired sessions are not listed.
    app.clock.advance_days(31);
    assert_eq!(list(&app.sign_in("ada").await).await.len(), 1);
}
