//! `Idempotency-Key`: what is sent again is answered again, and done once.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Answer, App, Caller, site};

const PROJECT: &str = "/v1/orgs/ada/projects/site";
const DEPLOYMENTS: &str = "/v1/orgs/ada/projects/site/deployments";

/// The parts of an answer that a repetition has to have as well.
fn parts(answer: &Answer) -> (u16, String, String, String) {
    let header = |name| answer.header(name).to_owned();
    let body = String::from_utf8(answer.bytes.clone()).unwrap();
    (answer.status, header("content-type"), header("x-request-id"), body)
}

fn is_replayed(answer: &Answer) -> bool {
    match answer.header("idempotent-replayed") {
        "true" => true,
        "" => false,
        other => panic!("Idempotent-Replayed: {other}"),
    }
}

/// That `again` repeats what `first` was answered.
#[track_caller]
fn repeats(first: &Answer, again: &Answer) {
    assert_eq!(parts(first), parts(again));
    assert!(!is_replayed(first) && is_replayed(again));
    assert_eq!(again.header("cache-control"), "no-store");
}

async fn org(caller: &Caller, key: &str, slug: &str) -> Answer {
    caller.post_once(key, "/v1/orgs", json!({ "slug": slug })).await
}

/// How many organizations of this slug there are, and how many audit rows tell of making one.
async fn made(app: &App, slug: &str) -> (usize, usize) {
    let orgs = app.db_rows(&format!("SELECT 1 AS one FROM orgs.orgs WHERE slug = '{slug}'")).await;
    let events = app.db_audit(slug).await;
    (orgs.len(), events.iter().filter(|event| *event == "org.create").count())
}

async fn upload(caller: &Caller, key: &str, bundle: Vec<u8>) -> Answer {
    let build = |request: reqwest::RequestBuilder| {
        request.header("idempotency-key", key).header("content-type", "application/gzip").body(bundle)
    };
    caller.send(Method::POST, DEPLOYMENTS, build).await
}

async fn keys(app: &App) -> usize {
    app.db_rows("SELECT 1 AS one FROM store.idempotency").await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_again_is_answered_again_and_done_once() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let first = org(&ada, "key-1", "acme").await;
    first.expect(201);
    let again = org(&ada, "key-1", "acme").await;
    repeats(&first, &again);
    assert!(uuid::Uuid::parse_str(again.header("x-request-id")).is_ok());
    // At another server too, and whatever the repetition itself is called.
    repeats(&first, &org(&other.meets(&ada), "key-1", "acme").await);
    let named = |request: reqwest::RequestBuilder| {
        let request = request.header("idempotency-key", "key-1").header("x-request-id", "second-try");
        request.json(&json!({ "slug": "acme" }))
    };
    repeats(&first, &ada.send(Method::POST, "/v1/orgs", named).await);
    assert_eq!(made(&app, "acme").await, (1, 1));
    // Without the key it is another request.
    let without = ada.post("/v1/orgs", json!({ "slug": "acme" })).await;
    without.refused(409, "slug_taken");
    assert!(!is_replayed(&without));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_under_the_same_key_is_refused() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let first = org(&ada, "key-1", "acme").await;
    for server in [&app, &other] {
        let refused = org(&server.meets(&ada), "key-1", "other").await;
        refused.refused(422, "idempotency_mismatch");
        assert!(!is_replayed(&refused));
    }
    assert_eq!(made(&app, "other").await, (0, 0));
    // The first one's answer stands.
    repeats(&first, &org(&ada, "key-1", "acme").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_belongs_to_a_caller_and_a_route() {
    let app = App::start().await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    for (caller, slug) in [(&ada, "one"), (&bob, "two")] {
        let answer = org(caller, "key-1", slug).await;
        answer.expect(201);
        assert!(!is_replayed(&answer));
    }
    // The same body, by somebody else: theirs to be refused.
    let answer = org(&bob, "key-2", "one").await;
    answer.refused(409, "slug_taken");
    for path in ["/v1/orgs/one/projects", "/v1/orgs/ada/projects"] {
        let project = ada.post_once("key-1", path, json!({ "name": "site" })).await;
        project.expect(201);
        assert!(!is_replayed(&project));
    }
    assert_eq!(keys(&app).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_the_right_to_it_is_not_told_the_old_answer() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    let bob = app.joined(&ada, "acme", "bob", "member").await;
    let create = async || bob.post_once("key-1", "/v1/orgs/acme/projects", json!({ "name": "site" })).await;
    create().await.expect(201);
    ada.delete(&format!("/v1/orgs/acme/members/{}", bob.user_id)).await.expect(204);
    create().await.refused(403, "forbidden");
    bob.send(Method::POST, "/v1/auth/logout", |request| request).await.expect(204);
    create().await.refused(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_at_once_one_is_carried_out() {
    let app = App::with(|config| config.database.connections = 24).await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    for round in 0..3 {
        let slug = format!("acme-{round}");
        let callers = (0..20).map(|n| if n % 2 == 0 { ada.clone() } else { other.meets(&ada) });
        let answers = join_all(callers.map(|caller| {
            let slug = slug.clone();
            async move { org(&caller, &slug, &slug).await }
        }))
        .await;
        let (carried_out, rest): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 201 && !is_replayed(answer));
        assert_eq!(carried_out.len(), 1);
        for answer in rest {
            match answer.status {
                201 => repeats(carried_out[0], answer),
                _ => drop(answer.refused(409, "idempotency_in_progress").clone()),
            }
        }
        assert_eq!(made(&app, &slug).await, (1, 1));
        repeats(carried_out[0], &org(&ada, &slug, &slug).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_an_answer_and_a_malformed_request_has_none() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    app.sign_in("taken").await;
    let first = org(&ada, "key-1", "taken").await;
    first.refused(409, "slug_taken");
    repeats(&first, &org(&ada, "key-1", "taken").await);
    // Also when it would go well by now.
    app.db_execute("UPDATE orgs.orgs SET slug = 'gone' WHERE slug = 'taken'").await.unwrap();
    repeats(&first, &org(&ada, "key-1", "taken").await);
    org(&ada, "key-2", "taken").await.expect(201);

    let before = keys(&app).await;
    for body in [json!({}), json!({ "slug": "No!" }), json!([]), json!({ "slug": "acme", "more": 1 })] {
        ada.post_once("key-3", "/v1/orgs", body).await.refused(400, "bad_request");
    }
    let odd = |request: reqwest::RequestBuilder| request.header("idempotency-key", "key-3").body("slug=acme");
    ada.send(Method::POST, "/v1/orgs", odd).await.refused(415, "unsupported_media_type");
    assert_eq!(keys(&app).await, before);
    let well = org(&ada, "key-3", "acme").await;
    well.expect(201);
    assert!(!is_replayed(&well));

    // Neither has what is refused before the key is looked at.
    ada.post_once("key-4", "/v1/orgs/nowhere/projects", json!({ "name": "x" })).await.refused(404, "not_found");
    app.anyone().post_once("key-4", "/v1/orgs", json!({ "slug": "x-1" })).await.refused(401, "unauthenticated");
    assert_eq!(keys(&app).await, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_day_the_key_is_free() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    app.clock.stop();
    let first = org(&ada, "key-1", "acme").await;
    app.clock.advance(24 * 3600 - 1);
    repeats(&first, &org(&ada, "key-1", "acme").await);
    app.clock.advance(1);
    let fresh = org(&ada, "key-1", "other").await;
    fresh.expect(201);
    assert!(!is_replayed(&fresh));
    repeats(&fresh, &org(&ada, "key-1", "other").await);
    org(&ada, "key-1", "acme").await.refused(422, "idempotency_mismatch");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_a_secret_is_kept_sealed() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    let create = async |app: &App| {
        let body = json!({ "name": "ci", "scopes": ["account:read"] });
        app.meets(&ada).post_once("key-1", "/v1/me/tokens", body).await
    };
    let first = create(&app).await;
    let token = first.expect(201)["token"].as_str().unwrap().to_owned();
    repeats(&first, &create(&other).await);
    app.with_token(&token).get("/v1/me").await.expect(200);
    assert_eq!(ada.get("/v1/me/tokens").await.expect(200)["items"].as_array().unwrap().len(), 1);
    let statement =
        "SELECT i.*, encode(answer, 'escape') AS escaped, encode(answer, 'base64') AS encoded FROM store.idempotency i";
    let rows = app.db_rows(statement).await;
    assert!(rows[0]["answer"].is_string() && rows[0]["key_id"] == "test");
    let text = serde_json::to_string(&rows).unwrap();
    assert!(!text.contains(&token[8..]) && !text.contains("svc_pat_"), "{text}");
    // One that was put in another's place does not open.
    org(&ada, "key-2", "acme").await.expect(201);
    let swap = "UPDATE store.idempotency SET answer = (SELECT answer FROM store.idempotency WHERE key = 'key-1') WHERE key = 'key-2'";
    app.db_execute(swap).await.unwrap();
    let answer = org(&ada, "key-2", "acme").await;
    answer.refused(500, "internal");
    assert!(!String::from_utf8_lossy(&answer.bytes).contains(&token[8..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_deployed_once() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let bundle = site("page");
    let first = upload(&ada, "key-1", bundle.clone()).await;
    assert_eq!(first.expect(201)["version"], 1);
    repeats(&first, &upload(&ada, "key-1", bundle.clone()).await);
    repeats(&first, &upload(&other.meets(&ada), "key-1", bundle.clone()).await);
    upload(&ada, "key-1", site("another page")).await.refused(422, "idempotency_mismatch");
    assert_eq!(ada.get(PROJECT).await.expect(200)["live"]["version"], 1);
    assert_eq!(ada.get(DEPLOYMENTS).await.expect(200)["items"].as_array().unwrap().len(), 1);
    // What is no bundle leaves the key free.
    upload(&ada, "key-2", b"hello".to_vec()).await.refused(400, "invalid_bundle");
    let second = upload(&ada, "key-2", site("another page")).await;
    assert_eq!(second.expect(201)["version"], 2);
    // And without a key, the same bundle is the next version, as ever.
    assert_eq!(ada.upload(DEPLOYMENTS, bundle).await.expect(201)["version"], 3);
    let back = async |version: u32| {
        ada.post_once("key-1", &format!("{PROJECT}/rollback"), json!({ "version": version })).await
    };
    let first = back(1).await;
    first.expect(200);
    repeats(&first, &back(1).await);
    back(2).await.refused(422, "idempotency_mismatch");
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
async fn ten_uploads_at_once_under_one_key_make_one_version() {
    let app = App::with(|config| config.database.connections = 24).await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let callers = (0..10).map(|n| if n % 2 == 0 { ada.clone() } else { other.meets(&ada) });
    let answers = join_all(callers.map(|caller| async move { upload(&caller, "key-1", site("page")).await })).await;
    let fresh = answers.iter().filter(|answer| answer.status == 201 && !is_replayed(answer)).count();
    assert_eq!(fresh, 1);
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        refused.refused(409, "idempotency_in_progress");
    }
    assert_eq!(ada.get(PROJECT).await.expect(200)["live"]["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_short_printable_and_there_once() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let send = async |keys: &[&str]| {
        let build = |request: reqwest::RequestBuilder| {
            let request = request.json(&json!({ "slug": "acme" }));
            keys.iter().fold(request, |request, key| request.header("idempotency-key", *key))
        };
        ada.send(Method::POST, "/v1/orgs", build).await
    };
    let (longest, longer) = ("k".repeat(255), "k".repeat(256));
    for keys in [&[""][..], &[&longer], &["a", "a"], &["a", "b"], &["schl\u{fc}ssel"]] {
        send(keys).await.refused(400, "bad_request");
    }
    assert_eq!((keys(&app).await, made(&app, "acme").await), (0, (0, 0)));
    send(&[&longest]).await.expect(201);
    assert!(is_replayed(&send(&[&longest]).await));
    // Reads have no use for one, and are not kept from working by it.
    let read = ada.send(Method::GET, "/v1/me", |request| request.header("idempotency-key", "a")).await;
    read.expect(200);
    assert_eq!(keys(&app).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_and_whose_answer_was_lost_is_not_done_again() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    org(&ada, "key-1", "acme").await.expect(201);
    upload(&ada, "key-2", site("page")).await.expect(201);
    app.db_execute("UPDATE store.idempotency SET answer = NULL, key_id = NULL").await.unwrap();
    // Until its lease is over, the first one may still be about to keep it.
    org(&other.meets(&ada), "key-1", "acme").await.refused(409, "idempotency_in_progress");
    app.clock.advance(60);
    for server in [&app, &other] {
        let ada = server.meets(&ada);
        org(&ada, "key-1", "acme").await.refused(409, "idempotency_answer_lost");
        upload(&ada, "key-2", site("page")).await.refused(409, "idempotency_answer_lost");
    }
    assert_eq!(made(&app, "acme").await, (1, 1));
    assert_eq!(ada.get(PROJECT).await.expect(200)["live"]["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_process_had_begun_is_carried_out_by_the_next() {
    let app = App::start().await;
    let other = app.another().await;
    let ada = app.sign_in("ada").await;
    org(&ada, "key-1", "acme").await.expect(201);
    // As it was before the transaction: claimed, with a lease that is renewed no more.
    let undo = "UPDATE orgs.orgs SET slug = 'undone' WHERE slug = 'acme'; \
        UPDATE store.idempotency SET committed = false, answer = NULL, key_id = NULL";
    app.db_execute(undo).await.unwrap();
    let there = other.meets(&ada);
    org(&there, "key-1", "acme").await.refused(409, "idempotency_in_progress");
    org(&there, "key-1", "other").await.refused(422, "idempotency_mismatch");
    assert_eq!(made(&app, "acme").await, (0, 0));
    app.clock.advance(60);
    let taken_over = org(&there, "key-1", "acme").await;
    taken_over.expect(201);
    assert!(!is_replayed(&taken_over));
    repeats(&taken_over, &org(&ada, "key-1", "acme").await);
    assert_eq!(made(&app, "acme").await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_and_a_project_at_its_limit_are_answered_once_too() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let body = json!({ "email": "bob@example.org", "role": "viewer" });
    let invite = async || ada.post_once("key-1", "/v1/orgs/ada/invites", body.clone()).await;
    let first = invite().await;
    first.expect(201);
    // Its link stays the one that was shown.
    repeats(&first, &invite().await);
    let link = first.body["acceptUrl"].as_str().unwrap();
    let token = link.rsplit('/').next().unwrap();
    app.anyone().get(&format!("/v1/invites/{token}")).await.expect(200);

    let bob = app.sign_in("bob").await;
    let path = format!("/v1/invites/{token}/accept");
    let accept = async || bob.send(Method::POST, &path, |request| request.header("idempotency-key", "key-1")).await;
    let first = accept().await;
    first.expect(200);
    repeats(&first, &accept().await);

    for n in 0..3 {
        ada.post("/v1/orgs/ada/projects", json!({ "name": format!("p{n}") })).await.expect(201);
    }
    let more = async || ada.post_once("key-1", "/v1/orgs/ada/projects", json!({ "name": "more" })).await;
    let first = more().await;
    first.refused(409, "project_limit");
    repeats(&first, &more().await);
    assert_eq!(first.body["details"], json!({ "limit": 3, "count": 3, "plan": "free" }));
    let raised: Vec<Value> =
        ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].as_array().unwrap().clone();
    assert_eq!(raised.len(), 1);
}
