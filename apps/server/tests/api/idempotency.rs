//! `Idempotency-Key`: a retry returns the stored response and executes nothing.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{ApiResponse, App, Caller, site};

const PROJECT: &str = "/v1/orgs/ada/projects/site";
const DEPLOYMENTS: &str = "/v1/orgs/ada/projects/site/deployments";

/// Returns the parts of a response that a replay repeats.
fn parts(response: &ApiResponse) -> (u16, String, String, String) {
    let header = |name| response.header(name).to_owned();
    let body = String::from_utf8(response.bytes.clone()).unwrap();
    (response.status, header("content-type"), header("x-request-id"), body)
}

fn is_replayed(response: &ApiResponse) -> bool {
    match response.header("idempotent-replayed") {
        "true" => true,
        "" => false,
        other => panic!("Idempotent-Replayed: {other}"),
    }
}

/// Asserts that `retry` is a replay of `first`.
#[track_caller]
fn assert_replay(first: &ApiResponse, retry: &ApiResponse) {
    assert_eq!(parts(first), parts(retry));
    assert!(!is_replayed(first) && is_replayed(retry));
    assert_eq!(retry.header("cache-control"), "no-store");
}

async fn create_org(caller: &Caller, key: &str, slug: &str) -> ApiResponse {
    caller.post_with_key(key, "/v1/orgs", json!({ "slug": slug })).await
}

/// Returns the number of organizations with this slug, and the number of audit events for their creation.
async fn count_orgs(app: &App, slug: &str) -> (usize, usize) {
    let orgs = app.db_rows(&format!("SELECT 1 AS one FROM orgs.orgs WHERE slug = '{slug}'")).await;
    let events = app.db_audit(slug).await;
    (orgs.len(), events.iter().filter(|event| *event == "org.create").count())
}

async fn upload(caller: &Caller, key: &str, bundle: Vec<u8>) -> ApiResponse {
    let build = |request: reqwest::RequestBuilder| {
        request.header("idempotency-key", key).header("content-type", "application/gzip").body(bundle)
    };
    caller.send(Method::POST, DEPLOYMENTS, build).await
}

async fn keys(app: &App) -> usize {
    app.db_rows("SELECT 1 AS one FROM store.idempotency").await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_returns_the_stored_response_and_executes_once() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let first = create_org(&ada, "key-1", "acme").await;
    first.expect(201);
    let again = create_org(&ada, "key-1", "acme").await;
    assert_replay(&first, &again);
    assert!(uuid::Uuid::parse_str(again.header("x-request-id")).is_ok());
    // Another server replays the response, too. The request ID of the retry does not matter.
    assert_replay(&first, &create_org(&other.connect(&ada), "key-1", "acme").await);
    let named = |request: reqwest::RequestBuilder| {
        let request = request.header("idempotency-key", "key-1").header("x-request-id", "second-try");
        request.json(&json!({ "slug": "acme" }))
    };
    assert_replay(&first, &ada.send(Method::POST, "/v1/orgs", named).await);
    assert_eq!(count_orgs(&app, "acme").await, (1, 1));
    // Without a key, a repeated request is a new one.
    let without = ada.post("/v1/orgs", json!({ "slug": "acme" })).await;
    without.expect_error(409, "slug_taken");
    assert!(!is_replayed(&without));
}

#[tokio::test(flavor = "multi_thread")]
async fn different_body_with_the_same_key_is_rejected() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let first = create_org(&ada, "key-1", "acme").await;
    for server in [&app, &other] {
        let refused = create_org(&server.connect(&ada), "key-1", "other").await;
        refused.expect_error(422, "idempotency_mismatch");
        assert!(!is_replayed(&refused));
    }
    assert_eq!(count_orgs(&app, "other").await, (0, 0));
    // The stored response is unchanged.
    assert_replay(&first, &create_org(&ada, "key-1", "acme").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_scoped_to_caller_and_route() {
    let app = App::start().await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    for (caller, slug) in [(&ada, "one"), (&bob, "two")] {
        let response = create_org(caller, "key-1", slug).await;
        response.expect(201);
        assert!(!is_replayed(&response));
    }
    // The same body from another caller is a new request.
    let response = create_org(&bob, "key-2", "one").await;
    response.expect_error(409, "slug_taken");
    for path in ["/v1/orgs/one/projects", "/v1/orgs/ada/projects"] {
        let project = ada.post_with_key("key-1", path, json!({ "name": "site" })).await;
        project.expect(201);
        assert!(!is_replayed(&project));
    }
    assert_eq!(keys(&app).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_without_permission_does_not_receive_the_stored_response() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    let bob = app.add_member(&ada, "acme", "bob", "member").await;
    let create = async || bob.post_with_key("key-1", "/v1/orgs/acme/projects", json!({ "name": "site" })).await;
    create().await.expect(201);
    ada.delete(&format!("/v1/orgs/acme/members/{}", bob.user_id)).await.expect(204);
    create().await.expect_error(403, "forbidden");
    bob.send(Method::POST, "/v1/auth/logout", |request| request).await.expect(204);
    create().await.expect_error(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_with_one_key_execute_once() {
    let app = App::with(|config| config.database.connections = 24).await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    for round in 0..3 {
        let slug = format!("acme-{round}");
        let callers = (0..20).map(|n| if n % 2 == 0 { ada.clone() } else { other.connect(&ada) });
        let responses = join_all(callers.map(|caller| {
            let slug = slug.clone();
            async move { create_org(&caller, &slug, &slug).await }
        }))
        .await;
        let (executed, rest): (Vec<_>, Vec<_>) =
            responses.iter().partition(|response| response.status == 201 && !is_replayed(response));
        assert_eq!(executed.len(), 1);
        for response in rest {
            match response.status {
                201 => assert_replay(executed[0], response),
                _ => drop(response.expect_error(409, "idempotency_in_progress").clone()),
            }
        }
        assert_eq!(count_orgs(&app, &slug).await, (1, 1));
        assert_replay(executed[0], &create_org(&ada, &slug, &slug).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_stored_and_validation_errors_are_not() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    app.sign_in("taken").await;
    let first = create_org(&ada, "key-1", "taken").await;
    first.expect_error(409, "slug_taken");
    assert_replay(&first, &create_org(&ada, "key-1", "taken").await);
    // The replay returns the conflict even if the request would succeed now.
    app.db_execute("UPDATE orgs.orgs SET slug = 'gone' WHERE slug = 'taken'").await.unwrap();
    assert_replay(&first, &create_org(&ada, "key-1", "taken").await);
    create_org(&ada, "key-2", "taken").await.expect(201);

    let before = keys(&app).await;
    for body in [json!({}), json!({ "slug": "No!" }), json!([]), json!({ "slug": "acme", "more": 1 })] {
        ada.post_with_key("key-3", "/v1/orgs", body).await.expect_error(400, "bad_request");
    }
    let wrong_type = |request: reqwest::RequestBuilder| request.header("idempotency-key", "key-3").body("slug=acme");
    ada.send(Method::POST, "/v1/orgs", wrong_type).await.expect_error(415, "unsupported_media_type");
    assert_eq!(keys(&app).await, before);
    let created = create_org(&ada, "key-3", "acme").await;
    created.expect(201);
    assert!(!is_replayed(&created));

    // Errors before the idempotency check are not stored either.
    ada.post_with_key("key-4", "/v1/orgs/nowhere/projects", json!({ "name": "x" }))
        .await
        .expect_error(404, "not_found");
    app.anonymous()
        .post_with_key("key-4", "/v1/orgs", json!({ "slug": "x-1" }))
        .await
        .expect_error(401, "unauthenticated");
    assert_eq!(keys(&app).await, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_expires_after_24_hours() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    app.clock.stop();
    let first = create_org(&ada, "key-1", "acme").await;
    app.clock.advance(24 * 3600 - 1);
    assert_replay(&first, &create_org(&ada, "key-1", "acme").await);
    app.clock.advance(1);
    let fresh = create_org(&ada, "key-1", "other").await;
    fresh.expect(201);
    assert!(!is_replayed(&fresh));
    assert_replay(&fresh, &create_org(&ada, "key-1", "other").await);
    create_org(&ada, "key-1", "acme").await.expect_error(422, "idempotency_mismatch");
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_response_with_a_secret_is_sealed() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let create = async |app: &App| {
        let body = json!({ "name": "ci", "scopes": ["account:read"] });
        app.connect(&ada).post_with_key("key-1", "/v1/me/tokens", body).await
    };
    let first = create(&app).await;
    let token = first.expect(201)["token"].as_str().unwrap().to_owned();
    assert_replay(&first, &create(&other).await);
    app.with_token(&token).get("/v1/me").await.expect(200);
    assert_eq!(ada.get("/v1/me/tokens").await.expect(200)["items"].as_array().unwrap().len(), 1);
    let statement =
        "SELECT i.*, encode(answer, 'escape') AS escaped, encode(answer, 'base64') AS encoded FROM store.idempotency i";
    let rows = app.db_rows(statement).await;
    assert!(rows[0]["answer"].is_string() && rows[0]["key_id"] == "test");
    let text = serde_json::to_string(&rows).unwrap();
    assert!(!text.contains(&token[8..]) && !text.contains("svc_pat_"), "{text}");
    // A sealed response does not open in another row.
    create_org(&ada, "key-2", "acme").await.expect(201);
    let swap = "UPDATE store.idempotency SET answer = (SELECT answer FROM store.idempotency WHERE key = 'key-1') WHERE key = 'key-2'";
    app.db_execute(swap).await.unwrap();
    let response = create_org(&ada, "key-2", "acme").await;
    response.expect_error(500, "internal");
    assert!(!String::from_utf8_lossy(&response.bytes).contains(&token[8..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_with_a_key_is_deployed_once() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let bundle = site("page");
    let first = upload(&ada, "key-1", bundle.clone()).await;
    assert_eq!(first.expect(201)["version"], 1);
    assert_replay(&first, &upload(&ada, "key-1", bundle.clone()).await);
    assert_replay(&first, &upload(&other.connect(&ada), "key-1", bundle.clone()).await);
    upload(&ada, "key-1", site("another page")).await.expect_error(422, "idempotency_mismatch");
    assert_eq!(ada.get(PROJECT).await.expect(200)["live"]["version"], 1);
    assert_eq!(ada.get(DEPLOYMENTS).await.expect(200)["items"].as_array().unwrap().len(), 1);
    // An invalid bundle does not consume the key.
    upload(&ada, "key-2", b"hello".to_vec()).await.expect_error(400, "invalid_bundle");
    let second = upload(&ada, "key-2", site("another page")).await;
    assert_eq!(second.expect(201)["version"], 2);
    // Without a key, the same bundle becomes a new version.
    assert_eq!(ada.upload(DEPLOYMENTS, bundle).await.expect(201)["version"], 3);
    let back = async |version: u32| {
        ada.post_with_key("key-1", &format!("{PROJECT}/rollback"), json!({ "version": version })).await
    };
    let first = back(1).await;
    first.expect(200);
    assert_replay(&first, &back(1).await);
    back(2).await.expect_error(422, "idempotency_mismatch");
    assert_eq!(
        app.db_audit("ada").await[1..],
        ["deployment.create"; 3]
            .map(str::to_owned)
            .into_iter()
            .chain(["deployment.rollback".to_owned()])
            .collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_of_an_upload_is_read_up_to_the_limit_of_the_plan() {
    let app = App::with(|config| config.limits.free.bundle.compressed = 2000).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let first = upload(&ada, "key-1", site("page")).await;
    first.expect(201);
    let response = upload(&ada, "key-1", vec![0; 2001]).await;
    let details = &response.expect_error(413, "payload_too_large")["details"];
    assert_eq!(details, &json!({ "limit": 2000, "of": "compressed" }));
    upload(&ada, "key-1", vec![0; 2000]).await.expect_error(422, "idempotency_mismatch");
    assert_replay(&first, &upload(&ada, "key-1", site("page")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uploads_with_one_key_create_one_version() {
    let app = App::with(|config| config.database.connections = 24).await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    // Start as many uploads as a user may have in progress on each server.
    let callers = (0..8).map(|n| if n % 2 == 0 { ada.clone() } else { other.connect(&ada) });
    let responses = join_all(callers.map(|caller| async move { upload(&caller, "key-1", site("page")).await })).await;
    let fresh = responses.iter().filter(|response| response.status == 201 && !is_replayed(response)).count();
    assert_eq!(fresh, 1);
    for refused in responses.iter().filter(|response| response.status != 201) {
        refused.expect_error(409, "idempotency_in_progress");
    }
    assert_eq!(ada.get(PROJECT).await.expect(200)["live"]["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_keys_are_rejected() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let send = async |keys: &[&str]| {
        let build = |request: reqwest::RequestBuilder| {
            let request = request.json(&json!({ "slug": "acme" }));
            keys.iter().fold(request, |request, key| request.header("idempotency-key", *key))
        };
        ada.send(Method::POST, "/v1/orgs", build).await
    };
    let (longest, too_long) = ("k".repeat(255), "k".repeat(256));
    for keys in [&[""][..], &[&too_long], &["a", "a"], &["a", "b"], &["schl\u{fc}ssel"]] {
        send(keys).await.expect_error(400, "bad_request");
    }
    assert_eq!((keys(&app).await, count_orgs(&app, "acme").await), (0, (0, 0)));
    send(&[&longest]).await.expect(201);
    assert!(is_replayed(&send(&[&longest]).await));
    // Reads ignore the key.
    let read = ada.send(Method::GET, "/v1/me", |request| request.header("idempotency-key", "a")).await;
    read.expect(200);
    assert_eq!(keys(&app).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_whose_response_was_lost_is_not_executed_again() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    create_org(&ada, "key-1", "acme").await.expect(201);
    upload(&ada, "key-2", site("page")).await.expect(201);
    app.db_execute("UPDATE store.idempotency SET answer = NULL, key_id = NULL").await.unwrap();
    // Until the lease ends, the first request may still store its response.
    create_org(&other.connect(&ada), "key-1", "acme").await.expect_error(409, "idempotency_in_progress");
    app.clock.advance(60);
    for server in [&app, &other] {
        let ada = server.connect(&ada);
        create_org(&ada, "key-1", "acme").await.expect_error(409, "idempotency_answer_lost");
        create_org(&ada, "key-1", "other").await.expect_error(422, "idempotency_mismatch");
        upload(&ada, "key-2", site("page")).await.expect_error(409, "idempotency_answer_lost");
    }
    assert_eq!(count_orgs(&app, "acme").await, (1, 1));
    assert_eq!(ada.get(PROJECT).await.expect(200)["live"]["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_claim_is_taken_over_after_its_lease() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    create_org(&ada, "key-1", "acme").await.expect(201);
    // Restore the state before the transaction: claimed, with a lease that is not renewed.
    let undo = "UPDATE orgs.orgs SET slug = 'undone' WHERE slug = 'acme'; \
        UPDATE store.idempotency SET committed = false, answer = NULL, key_id = NULL";
    app.db_execute(undo).await.unwrap();
    let ada_at_other = other.connect(&ada);
    create_org(&ada_at_other, "key-1", "acme").await.expect_error(409, "idempotency_in_progress");
    create_org(&ada_at_other, "key-1", "other").await.expect_error(422, "idempotency_mismatch");
    assert_eq!(count_orgs(&app, "acme").await, (0, 0));
    app.clock.advance(60);
    let taken_over = create_org(&ada_at_other, "key-1", "acme").await;
    taken_over.expect(201);
    assert!(!is_replayed(&taken_over));
    assert_replay(&taken_over, &create_org(&ada, "key-1", "acme").await);
    assert_eq!(count_orgs(&app, "acme").await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn invitations_and_limit_errors_are_replayed() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let body = json!({ "email": "bob@example.org", "role": "viewer" });
    let invite = async || ada.post_with_key("key-1", "/v1/orgs/ada/invites", body.clone()).await;
    let first = invite().await;
    first.expect(201);
    // The replay returns the same link.
    assert_replay(&first, &invite().await);
    let link = first.body["acceptUrl"].as_str().unwrap();
    let token = link.rsplit('/').next().unwrap();
    app.anonymous().get(&format!("/v1/invites/{token}")).await.expect(200);

    let bob = app.sign_in("bob").await;
    let path = format!("/v1/invites/{token}/accept");
    let accept = async || bob.send(Method::POST, &path, |request| request.header("idempotency-key", "key-1")).await;
    let first = accept().await;
    first.expect(200);
    assert_replay(&first, &accept().await);

    for n in 0..3 {
        ada.post("/v1/orgs/ada/projects", json!({ "name": format!("p{n}") })).await.expect(201);
    }
    let more = async || ada.post_with_key("key-1", "/v1/orgs/ada/projects", json!({ "name": "more" })).await;
    let first = more().await;
    first.expect_error(409, "project_limit");
    assert_replay(&first, &more().await);
    assert_eq!(first.body["details"], json!({ "limit": 3, "count": 3, "plan": "free" }));
    let raised: Vec<Value> =
        ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].as_array().unwrap().clone();
    assert_eq!(raised.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_keys_of_a_user_are_limited() {
    // Two keys can be used in one burst.
    let app = App::with(|config| config.abuse_limits.idempotency_keys_per_user = 4).await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let first = create_org(&ada, "key-1", "bob").await;
    first.expect_error(409, "slug_taken");
    // The credentials of a user share the limit.
    let other_session = app.sign_in("ada").await;
    create_org(&other_session, "key-1", "bob").await.expect_error(409, "slug_taken");
    let refused = create_org(&ada, "key-2", "acme").await;
    let error = refused.expect_error(429, "rate_limited");
    assert_eq!(error["details"], json!({ "limit": 4, "of": "idempotency_keys" }));
    create_org(&other_session, "key-2", "acme").await.expect_error(429, "rate_limited");
    assert_eq!((count_orgs(&app, "acme").await, keys(&app).await), ((0, 0), 2));
    // Known keys, requests without a key, and other users are not affected.
    assert_replay(&first, &create_org(&ada, "key-1", "bob").await);
    ada.post("/v1/orgs", json!({ "slug": "beta" })).await.expect(201);
    create_org(&bob, "key-1", "ada").await.expect_error(409, "slug_taken");
    app.clock.advance(refused.header("retry-after").parse().unwrap());
    create_org(&ada, "key-2", "acme").await.expect(201);
    create_org(&ada, "key-3", "acme").await.expect_error(429, "rate_limited");
}
