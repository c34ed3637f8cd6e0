//! Limits, cancellation and the end of sessions.

use std::time::Duration;

use node::database::registry::Connection;
use node::pg::{Limits, Mode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::rig::{Outcome, Rig, SLEEPING};

/// Fails if an outcome is not an error with this code.
fn assert_fails(outcome: Outcome, code: &str) {
    assert_eq!(outcome.map_err(|(code, _)| code), Err(code.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_is_canceled_at_the_time_limit() {
    let limits = Limits { statement: Duration::from_secs(5), ..Limits::default() };
    let Some(rig) = Rig::start_with(limits).await else { return };
    // A statement cannot disable the limit.
    let endless = rig.query("SELECT set_config('statement_timeout', '0', false), pg_sleep(600)").await;
    assert_eq!(endless.unwrap_err().0, "57014");
    rig.wait_for_sessions(SLEEPING, 0).await;
    // The limit applies to each statement of a batch.
    let slow = rig.spawn(Mode::Batch, &["SELECT pg_sleep(2.6)", "SELECT pg_sleep(2.6)"]).await.unwrap();
    assert!(slow.is_ok(), "{slow:?}");
    // The limit includes the time in which the worker reads the result.
    let body = br#"[{ "text": "SELECT repeat('x', 1000) FROM generate_series(1, 10000)", "params": [] }]"#;
    let mut unread = rig.begin(Mode::Query, &body[..]);
    rig.wait_for_sessions("state = 'active'", 1).await;
    rig.wait_for_sessions("state = 'active'", 0).await;
    while let Some(chunk) = unread.recv().await {
        assert!(chunk.is_ok(), "the error is at the end of the chunks");
    }
    assert_eq!(rig.value("SELECT 1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_without_rows_waits_until_the_worker_reads_its_result() {
    let limit = Duration::from_secs(5);
    let limits = Limits { statement: limit, idle: limit, ..Limits::default() };
    let Some(rig) = Rig::start_with(limits).await else { return };
    let columns: Vec<_> = (0..1600).map(|number| format!("c{number:0>62} int4")).collect();
    rig.query(&format!("CREATE TABLE wide ({})", columns.join(", "))).await.unwrap();
    // The names of the columns have more than 100 KB in each result.
    let statement = json!({ "text": "SELECT * FROM wide", "params": [] });
    let body = Value::from(vec![statement; 20]).to_string();
    let mut unread = rig.begin(Mode::Batch, body);
    rig.wait_for_sessions("true", 0).await;
    let mut json = Vec::new();
    while let Some(chunk) = unread.recv().await {
        json.extend_from_slice(&chunk.unwrap());
    }
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["error"]["code"], "57014");
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_canceled_at_its_time_limit() {
    let limits = Limits { batch: Duration::from_secs(2), ..Limits::default() };
    let Some(rig) = Rig::start_with(limits).await else { return };
    rig.query("CREATE TABLE t (id int)").await.unwrap();
    // Each statement is far below its own limit.
    let slow = ["INSERT INTO t VALUES (1)", "SELECT pg_sleep(1)", "SELECT pg_sleep(1)", "SELECT pg_sleep(600)"];
    let (code, message) = rig.spawn(Mode::Batch, Box::leak(Box::new(slow))).await.unwrap().unwrap_err();
    assert_eq!((code.as_str(), message.contains("batch took more than 2 s")), ("57014", true), "{message}");
    rig.wait_for_sessions(SLEEPING, 0).await;
    assert_eq!(rig.value("SELECT count(*)::int4 FROM t").await, 0);
    // A single statement has no such limit.
    assert_eq!(rig.value("SELECT pg_sleep(3)::text").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_call_is_canceled() {
    let Some(rig) = Rig::start().await else { return };
    let body = br#"[{ "text": "SELECT pg_sleep(600)", "params": [] }]"#;
    let chunks = rig.begin(Mode::Query, &body[..]);
    rig.wait_for_sessions(SLEEPING, 1).await;
    drop(chunks);
    rig.wait_for_sessions("true", 0).await;
    assert_eq!(rig.value("SELECT 1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_for_a_connection() {
    let limits = Limits { wait: Duration::from_secs(5), idle: Duration::from_secs(1), ..Limits::default() };
    let Some(rig) = Rig::start_with(limits).await else { return };
    let running: Vec<_> = (0..8).map(|_| rig.spawn(Mode::Query, &["SELECT pg_sleep(600)"])).collect();
    rig.wait_for_sessions(SLEEPING, 8).await;
    assert_fails(rig.query("SELECT 1").await, "too_many_connections");
    let waiting = rig.spawn(Mode::Query, &["SELECT 1"]);
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE usename = 'node_1'";
    rig.admin.query_one(cancel, &[]).await.unwrap();
    for call in running {
        assert_fails(call.await.unwrap(), "57014");
    }
    // This call may fail, because it may have waited for too long before the others ended.
    let _ = waiting.await.unwrap();
    assert_eq!(rig.value("SELECT 1").await, 1);
    // Unused connections are closed.
    rig.wait_for_sessions("true", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parsed_statements_use_a_limited_memory() {
    let Some(rig) = Rig::start().await else { return };
    let sum = |count: usize| {
        let numbers = vec![r#""n1""#; count].join(",");
        format!(r#"{{ "text": "SELECT sum(n)::int4 FROM unnest($1::int4[]) n", "params": [[{numbers}]] }}"#)
    };
    let result = rig.call(Mode::Query, format!("[{}]", sum(100_000))).await.unwrap();
    assert_eq!(result["results"][0]["rows"][0][0], 100_000);
    // One call exceeds the limit of an owner.
    let empty = vec!["[]"; 5_000_000].join(",");
    let excessive = format!(r#"[{{ "text": "SELECT 1", "params": [[{empty}]] }}]"#);
    let (code, message) = rig.call(Mode::Query, excessive).await.unwrap_err();
    assert_eq!((code.as_str(), message.contains("too many parameters")), ("invalid_argument", true), "{message}");
    // Two calls together exceed the limit.
    let body = format!(r#"[{{ "text": "SELECT pg_sleep(600)", "params": [] }}, {}]"#, sum(600_000));
    let sleeping = rig.begin(Mode::Batch, body);
    rig.wait_for_sessions(SLEEPING, 1).await;
    let large = format!("[{}]", sum(600_000));
    assert_fails(rig.call(Mode::Query, large.clone()).await, "too_many_connections");
    assert_eq!(rig.value("SELECT 1").await, 1);
    drop(sleeping);
    rig.wait_for_sessions(SLEEPING, 0).await;
    let result = rig.call(Mode::Query, large).await.unwrap();
    assert_eq!(result["results"][0]["rows"][0][0], 600_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_rows_of_an_owner_leave_memory_to_others() {
    const LARGE: &[u8] = br#"[{ "text": "SELECT repeat('x', 16000000)", "params": [] }]"#;
    let Some(rig) = Rig::start().await else { return };
    // Each row uses almost half of the owner's share until its result was read.
    let mut held = [rig.begin(Mode::Query, LARGE), rig.begin(Mode::Query, LARGE)];
    for unread in &mut held {
        unread.recv().await.unwrap().unwrap();
    }
    // Postgres waits, because the node does not read the row.
    let mut waiting = rig.begin(Mode::Query, LARGE);
    rig.wait_for_sessions("wait_event = 'ClientWrite'", 1).await;
    let mut other = rig.begin_as("usr_2", Mode::Query, LARGE);
    while let Some(chunk) = other.recv().await {
        chunk.unwrap();
    }
    assert!(waiting.try_recv().is_err(), "the calls of an owner do not share its memory");
    drop(held);
    waiting.recv().await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_ends_running_calls_and_refuses_others() {
    let Some(rig) = Rig::start().await else { return };
    rig.query("CREATE TABLE t (id int)").await.unwrap();
    let running = rig.spawn(Mode::Batch, &["INSERT INTO t VALUES (1)", "SELECT pg_sleep(600)"]);
    rig.wait_for_sessions(SLEEPING, 1).await;
    rig.access.send_replace(Connection::Closed);
    assert_fails(running.await.unwrap(), "database_unavailable");
    assert_fails(rig.query("SELECT 1").await, "database_unavailable");
    rig.wait_for_sessions("true", 0).await;
    rig.reopen(2);
    assert_eq!(rig.value("SELECT count(*)::int4 FROM t").await, 0);
    // After the access is opened again, calls use new connections, and the earlier connections are closed.
    rig.reopen(3);
    let before = rig.value("SELECT pg_backend_pid()").await;
    rig.wait_for_sessions(&format!("pid <> {before}"), 0).await;
    rig.reopen(4);
    rig.wait_for_sessions("true", 0).await;
    assert_ne!(rig.value("SELECT pg_backend_pid()").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_sessions_are_replaced() {
    let Some(mut rig) = Rig::start().await else { return };
    rig.query("SELECT 1").await.unwrap();
    // If an idle session ends, no call fails.
    let end = "SELECT count(pg_terminate_backend(pid, 30000)) FROM pg_stat_activity WHERE usename = 'node_1'";
    for _ in 0..5 {
        rig.admin.query_one(end, &[]).await.unwrap();
        assert_eq!(rig.value("SELECT 1").await, 1);
    }
    // If the session of a running call ends, the call fails.
    let running = rig.spawn(Mode::Query, &["SELECT pg_sleep(600)"]);
    rig.wait_for_sessions(SLEEPING, 1).await;
    rig.admin.query_one(end, &[]).await.unwrap();
    assert_fails(running.await.unwrap(), "database_unavailable");
    // The server is killed.
    let running = rig.spawn(Mode::Query, &["SELECT pg_sleep(600)"]);
    rig.wait_for_sessions(SLEEPING, 1).await;
    rig.postgres.kill();
    assert_fails(timeout(Duration::from_secs(60), running).await.unwrap().unwrap(), "database_unavailable");
    assert_fails(rig.query("SELECT 1").await, "database_unavailable");
    rig.postgres.restart();
    assert_eq!(rig.value("SELECT 1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_login_is_unavailable() {
    let Some(rig) = Rig::start().await else { return };
    rig.admin.batch_execute("ALTER ROLE node_1 PASSWORD 'another'").await.unwrap();
    let (code, message) = rig.query("SELECT 1").await.unwrap_err();
    assert_eq!(code, "database_unavailable");
    assert!(!message.contains("node_1") && !message.contains("hush"), "{message}");
    rig.admin.batch_execute("ALTER ROLE node_1 PASSWORD 'hush' NOLOGIN").await.unwrap();
    assert_fails(rig.query("SELECT 1").await, "database_unavailable");
    rig.admin.batch_execute("ALTER ROLE node_1 LOGIN").await.unwrap();
    assert_eq!(rig.value("SELECT current_user::text || session_user::text").await, "db_1node_1");
}
