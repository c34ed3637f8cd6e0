//! The task that removes what has ended, and the schema set-up.

use std::time::Duration;

use sandbox::IdentityProvider::{self, CodeHost, WebAccount};
use tokio::time::sleep;
use tokio_postgres::Client;

use super::{HOST, PROJECT, Rig, user_id};
use crate::database::kit::number;
use crate::running::eventually_within;

const SESSIONS: &str = "SELECT count(*) FROM svc_auth.sessions";

/// Adds a user with a session of `codehost` that was used two days ago.
const ADD_SESSION: &str = r#"
    INSERT INTO svc_auth.users (id, provider) VALUES (gen_random_uuid(), 'codehost');
    INSERT INTO svc_auth.sessions (used_at, "grant", epoch, registration, user_id, state, token, provider)
    SELECT now() - interval '2 days', 1, 1, 1, id, gen_random_uuid(), sha256(id::text::bytea), 'codehost'
    FROM svc_auth.users ORDER BY created_at DESC LIMIT 1"#;

/// Waits until a condition holds, for longer than the task's delay after a failed attempt.
async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    eventually_within(Duration::from_secs(180), what, async || condition().await.then_some(())).await;
}

async fn has_schema(admin: &Client) -> bool {
    number(admin, "SELECT count(*) FROM pg_namespace WHERE nspname = 'svc_auth'").await == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn project_whose_database_hangs_delays_no_other() {
    let Some(mut rig) = Rig::start().await else { return };
    rig.enable("other").await;
    let mut auth = rig.auth(&IdentityProvider::ALL);
    rig.core.set_part("other", "auth", serde_json::to_value(&auth).unwrap());
    let other = rig.superuser(&rig.name("other")).await;
    eventually("the schema", async || has_schema(&other).await).await;
    other.batch_execute(ADD_SESSION).await.unwrap();
    let hostile = rig.superuser(&rig.name(PROJECT)).await;
    eventually("the schema", async || has_schema(&hostile).await).await;
    hostile.batch_execute(ADD_SESSION).await.unwrap();
    auth.session_days = 1;
    rig.set_auth(&auth);
    let is_clean = async || rig.node.log().contains("removed identities and sessions of app users");
    eventually("the end of the first attempts", is_clean).await;

    // A project can keep new sessions from starting: without the cache of the catalogs, they wait for this lock. A
    // superuser takes it here, to keep the test short.
    let oid = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()";
    let oid = number(&hostile, oid).await;
    let hang = format!(
        "BEGIN; LOCK TABLE pg_class IN ACCESS EXCLUSIVE MODE;
         COPY (VALUES (1)) TO PROGRAM 'cat > /dev/null; rm -f base/{oid}/pg_internal.init'"
    );
    hostile.batch_execute(&hang).await.unwrap();
    auth.session_days = 20;
    rig.set_auth(&auth);
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pg_class'::regclass";
    eventually("a session that hangs", async || number(&other, waiting).await > 0).await;

    auth.session_days = 1;
    rig.core.set_part("other", "auth", serde_json::to_value(&auth).unwrap());
    eventually("the end of the session", async || number(&other, SESSIONS).await == 0).await;
    let has_failed = async || rig.node.log().contains("failed to remove ended sessions");
    eventually("the end of the attempt", has_failed).await;
    let log = rig.node.log();
    assert!(log.contains("the database did not respond in time"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_state_removes_nothing() {
    let Some(mut rig) = Rig::start().await else { return };
    let admin = rig.superuser(&rig.name(PROJECT)).await;
    eventually("the schema", async || has_schema(&admin).await).await;
    let mut auth = rig.auth(&IdentityProvider::ALL);
    admin.batch_execute(ADD_SESSION).await.unwrap();
    auth.session_days = 1;
    rig.apply_auth(&auth).await;
    eventually("the check", async || number(&admin, SESSIONS).await == 0).await;
    // The control plane could have sent longer sessions while the node was down.
    rig.core.stop().await;
    admin.batch_execute(ADD_SESSION).await.unwrap();
    rig.restart_node();
    let visitor = rig.visitor().await;
    eventually("the sign-in", async || visitor.get(HOST, "/__svc/auth/login").await.status == 200).await;
    // Longer than the interval in which the node looks for projects with work.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(number(&admin, SESSIONS).await, 1);
    rig.core.restart().await;
    eventually("the end of the session", async || number(&admin, SESSIONS).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_schema_that_replaces_one_of_the_project_is_not_renamed() {
    let Some(rig) = Rig::start_disabled().await else { return };
    let foreign = "CREATE SCHEMA svc_auth; CREATE TABLE svc_auth.mine (a int)";
    rig.session(PROJECT).await.batch_execute(foreign).await.unwrap();
    let admin = rig.superuser(&rig.name(PROJECT)).await;
    // The lock of migrations: "svc_auth" in ASCII.
    let lock = "SELECT pg_advisory_lock(x'7376635f61757468'::bigint)";
    admin.batch_execute(lock).await.unwrap();
    rig.enable_auth(&IdentityProvider::ALL).await;
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'";
    eventually("a session that found the schema", async || number(&admin, waiting).await > 0).await;
    // Before the node gets the lock, another session creates the schema of app user auth.
    let login = rig.name(PROJECT).replace("db_", "auth_");
    let schema = include_str!("../../../src/auth/store/schema.sql");
    let replace = format!(
        "BEGIN; DROP SCHEMA svc_auth CASCADE; SET LOCAL ROLE {login}; {schema};
         INSERT INTO svc_auth.users (id, provider) VALUES (gen_random_uuid(), 'codehost'); COMMIT"
    );
    admin.batch_execute(&replace).await.unwrap();
    admin.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    let mut browser = rig.browser().await;
    let signs_in = async || rig.browser().await.sign_in(WebAccount, "ada", "/").await.status == 303;
    eventually("a sign-in", signs_in).await;
    assert_eq!(browser.sign_in(CodeHost, "grace", "/").await.status, 303);
    assert!(user_id(&mut browser).await.starts_with("sub_"));
    assert_eq!(number(&admin, "SELECT count(*) FROM svc_auth.users").await, 3);
}
