//! Postgres outages, aborted requests, locks and read-only mode.

use std::time::Duration;

use ::chaos::{NetworkFault, Proxy};
use kernel::Secret;
use reqwest::Method;
use serde_json::json;

use crate::support::{ApiResponse, App, Caller, eventually, use_short_waits, while_changes_wait};

#[tokio::test(flavor = "multi_thread")]
async fn requests_fail_with_503_during_a_postgres_outage_and_recover() {
    let database = testkit::TestDatabase::create().await;
    let (proxy, url) = Proxy::start_for_postgres(&database.url()).await.unwrap();
    // The thread has its own connections, as in the program.
    let database = store::Config { threads: 1, ..store::Config::new(Secret::new(url), "test") };
    let app = App::with(move |config| config.database = database).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);

    proxy.set_fault(NetworkFault::Disconnect);
    for _ in 0..5 {
        let response = ada.get("/v1/me").await;
        response.expect_error(503, "unavailable");
        assert!(!response.header("retry-after").is_empty());
        ada.post("/v1/orgs", json!({ "slug": "other" })).await.expect_error(503, "unavailable");
        app.anonymous().get("/readyz").await.expect_error(503, "unavailable");
        app.anonymous().get("/healthz").await.expect(200);
    }

    proxy.set_fault(NetworkFault::None);
    eventually("the server recovers", async || (ada.get("/v1/me").await.status == 200).then_some(())).await;
    for _ in 0..20 {
        ada.get("/v1/orgs").await.expect(200);
    }
    ada.post("/v1/orgs", json!({ "slug": "other" })).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_request_releases_its_locks() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    // Lock the organization's row, so that the creation of the project waits inside its transaction.
    let holder = app.hold("SELECT id FROM orgs.orgs FOR UPDATE").await;
    let mut stream = tokio::net::TcpStream::connect(app.base.strip_prefix("http://").unwrap()).await.unwrap();
    let body = r#"{"name":"site"}"#;
    let request = format!(
        "POST /v1/orgs/ada/projects HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        ada.token.as_deref().unwrap(),
        body.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Reset the connection, so that the server drops the waiting handler.
    stream.set_zero_linger().unwrap();
    drop(stream);
    holder.commit("").await;
    // Query Postgres outside of the pool, because a checkout of the connection would also end its transaction.
    let idle = "SELECT count(*) FROM pg_stat_activity \
        WHERE state LIKE 'idle in transaction%' AND datname = current_database()";
    eventually("all transactions end", async || (app.db_rows(idle).await[0]["count"] == 0).then_some(())).await;
    let again = ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await;
    // The aborted request created the project or had no effect.
    assert!([201, 409].contains(&again.status), "{again:?}");
    ada.get("/v1/orgs/ada/projects/site").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_organization_does_not_block_others() {
    let app = App::with(use_short_waits).await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let holder = app.hold("SELECT id FROM orgs.orgs WHERE slug = 'ada' FOR UPDATE").await;
    let change = async || ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await;
    let blocked = async || {
        let response = change().await;
        response.expect_error(503, "unavailable");
        response
    };
    while_changes_wait(blocked, async {
        // Four changes of an organization can wait, and reads need no permit.
        let read = async || ada.send(Method::HEAD, "/v1/orgs/ada/projects", |request| request).await;
        assert_eq!(app.send_during_changes(4, read).await.status, 200);
        let free = async || bob.post("/v1/orgs/bob/projects", json!({ "name": "site" })).await;
        app.send_during_changes(4, free).await.expect(201);
    })
    .await;
    holder.commit("").await;
    change().await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_account_does_not_block_others() {
    let app = App::with(use_short_waits).await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    let holder = app.hold("SELECT id FROM identity.users WHERE subject = 'ada' FOR NO KEY UPDATE").await;
    let blocked = async || {
        let response = create_token(&ada).await;
        response.expect_error(503, "unavailable");
        response
    };
    while_changes_wait(blocked, async {
        // Four changes of an account can wait. Changes in organizations have separate permits.
        let rename = async || ada.patch("/v1/orgs/ada", json!({ "name": "Ada" })).await;
        app.send_during_changes(4, rename).await.expect(200);
        app.send_during_changes(4, async || create_token(&bob).await).await.expect(201);
    })
    .await;
    holder.commit("").await;
    create_token(&ada).await.expect(201);
}

async fn create_token(caller: &Caller) -> ApiResponse {
    caller.post("/v1/me/tokens", json!({ "name": "ci", "scopes": ["deploy"] })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_succeed_while_postgres_is_read_only() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let read_only = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', \
                    current_database()); END $$";
    app.db_execute(read_only).await.unwrap();
    // The setting applies only to new connections.
    let terminate = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
                  WHERE datname = current_database() AND pid <> pg_backend_pid()";
    app.db_execute(terminate).await.unwrap();
    eventually("the server opens connections", async || (ada.get("/v1/me").await.status == 200).then_some(())).await;
    // Send more requests than one reservation of permits covers.
    for _ in 0..25 {
        ada.get("/v1/me").await.expect(200);
    }
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect_error(503, "unavailable");
    app.with_token("svc_pat_wrong").get("/v1/me").await.expect_error(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_probed_at_most_once_a_second() {
    let app = App::start().await;
    app.clock.stop();
    let anonymous = app.anonymous();
    let is_ready = async || anonymous.get("/readyz").await.status == 200;
    assert!(is_ready().await);
    let history = "public.__diesel_schema_migrations";
    app.db_execute(&format!("CREATE TABLE applied AS TABLE {history}; DELETE FROM {history}")).await.unwrap();
    for (elapsed, expected) in [(0, true), (1, false)] {
        app.clock.advance(elapsed);
        for _ in 0..5 {
            assert_eq!(is_ready().await, expected);
        }
    }
    anonymous.get("/readyz").await.expect_error(503, "unavailable");
    app.db_execute(&format!("INSERT INTO {history} TABLE applied")).await.unwrap();
    assert!(!is_ready().await);
    app.clock.advance(1);
    assert!(is_ready().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_readiness_checks_share_one_probe() {
    use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};
    let app = App::start().await;
    // Stop the clock, so that the result of the first probe is valid for all requests of the test.
    app.clock.stop();
    let ada = app.sign_in("ada").await;
    let mut holder = store::Connection::establish(&app.database.url()).await.unwrap();
    let lock = "BEGIN; LOCK TABLE public.__diesel_schema_migrations IN ACCESS EXCLUSIVE MODE";
    holder.batch_execute(lock).await.unwrap();
    // Send more requests than the pool has connections.
    let anonymous = app.anonymous();
    let checks =
        tokio::spawn(async move { futures_util::future::join_all((0..64).map(|_| anonymous.get("/readyz"))).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity \
        WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let waiting = async || app.db_rows(waiting).await[0]["count"].as_i64().unwrap();
    eventually("a probe waits for the lock", async || (waiting().await > 0).then_some(())).await;
    for _ in 0..20 {
        ada.get("/v1/me").await.expect(200);
        assert!(waiting().await <= 1);
    }
    holder.batch_execute("COMMIT").await.unwrap();
    let checks = checks.await.unwrap();
    // The probe may have timed out.
    assert!(checks.iter().all(|check| check.status == checks[0].status), "{checks:?}");
}
