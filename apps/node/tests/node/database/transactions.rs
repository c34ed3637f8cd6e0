//! Transactions of tenants that would keep Postgres from reusing transaction ids.

use std::time::Duration;

use node::database::admin::Admin;
use node::database::server::Server;
use node::database::sessions::{TransactionLimits, terminate_harmful};
use tokio_postgres::Client;

use super::kit::{Kit, PASSWORD, eventually, number};
use crate::visitor::get_text;

async fn is_open(session: &Client) -> bool {
    session.batch_execute("SELECT 1").await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_transactions_end() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let admin = Admin::new(Server::parse(&kit.postgres.url()).unwrap());
    let client = admin.connect().await.unwrap();
    let setup = kit.session("prj_a").await;
    setup.batch_execute("CREATE TABLE t (n bigint)").await.unwrap();
    let defaults = TransactionLimits::default();

    // The sessions have a transaction with an id, a transaction with a snapshot, and a statement that writes.
    let (with_id, with_snapshot, writing) =
        (kit.session("prj_a").await, kit.session("prj_a").await, kit.session("prj_a").await);
    with_id.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    with_snapshot.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await.unwrap();
    let statement = "INSERT INTO t SELECT 2 FROM (SELECT pg_sleep(0.01) FROM generate_series(1, 100000)) s";
    let written = tokio::spawn(async move { writing.batch_execute(statement).await });
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND backend_xid IS NOT NULL AND query LIKE 'INSERT%'";
    eventually("the statement", async || number(&client, running).await == 1).await;
    let limits = TransactionLimits { ids: 100, ..defaults };
    assert_eq!(terminate_harmful(&client, limits).await.unwrap(), 0);
    for _ in 0..150 {
        setup.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    }
    assert_eq!(terminate_harmful(&client, defaults).await.unwrap(), 0);
    assert_eq!(terminate_harmful(&client, limits).await.unwrap(), 3);
    assert!(written.await.unwrap().is_err());
    assert!(!is_open(&with_id).await && !is_open(&with_snapshot).await && is_open(&setup).await);

    // This transaction is ended only because of its duration.
    let (old, idle) = (kit.session("prj_a").await, kit.session("prj_a").await);
    old.batch_execute("BEGIN; SELECT 1").await.unwrap();
    let limits = TransactionLimits { time: Duration::ZERO, ..defaults };
    assert_eq!(terminate_harmful(&client, limits).await.unwrap(), 1);
    assert!(!is_open(&old).await && is_open(&idle).await);
    assert_eq!(number(&idle, "SELECT count(*) FROM t").await, 0);
}

/// Sets the age of the oldest transaction id of a database.
async fn set_oldest_id(superuser: &Client, database: &str, age: i64) {
    let set = format!(
        "UPDATE pg_database SET datfrozenxid = ((txid_current() - {age} + 4294967296) % 4294967296)::text::xid
        WHERE datname = '{database}'"
    );
    superuser.batch_execute(&set).await.unwrap();
}

/// Ends autovacuum, which would correct the age of a database.
async fn end_autovacuum(superuser: &Client) {
    const RUNNING: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%'";
    superuser.batch_execute("ALTER SYSTEM SET autovacuum = off").await.unwrap();
    superuser.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    eventually("the end of autovacuum", async || number(superuser, RUNNING).await == 0).await;
}

/// Tests the protection from transaction ids that Postgres cannot freeze, for example those of temporary tables.
#[tokio::test(flavor = "multi_thread")]
async fn database_with_old_transaction_ids_loses_its_sessions_and_then_its_logins() {
    let Some((mut kit, address)) = Kit::start_with_metrics().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let (old, young) = (kit.session("prj_a").await, kit.session("prj_b").await);
    let superuser = kit.superuser("svc_node").await;
    end_autovacuum(&superuser).await;
    let admin = Admin::new(Server::parse(&kit.postgres.url()).unwrap());
    let client = admin.connect().await.unwrap();
    let defaults = TransactionLimits::default();
    let limits = TransactionLimits { session_time: Duration::ZERO, ..defaults };
    assert_eq!(terminate_harmful(&client, limits).await.unwrap(), 0);

    let database = kit.name("prj_a");
    set_oldest_id(&superuser, &database, 300_000_000).await;
    assert_eq!(terminate_harmful(&client, defaults).await.unwrap(), 0);
    assert_eq!(terminate_harmful(&client, limits).await.unwrap(), 1);
    assert!(!is_open(&old).await && is_open(&young).await);
    kit.session("prj_a").await.batch_execute("SELECT").await.unwrap();

    set_oldest_id(&superuser, &database, 1_100_000_000).await;
    let report = kit.reported("prj_a", "the refusal", |report| !report.ready).await;
    assert!(!report.read_only, "{report:?}");
    assert!(kit.log_in(&kit.app("prj_a"), PASSWORD, &database).await.is_err());
    eventually("the metric", async || {
        let metrics = get_text(&format!("http://{address}/metrics")).await;
        let age = metrics.lines().find_map(|line| line.strip_prefix("svc_node_database_oldest_id_age "));
        age.is_some_and(|age| age.parse::<f64>().unwrap() > 1e9)
    })
    .await;
    assert!(is_open(&young).await);

    set_oldest_id(&superuser, &database, 0).await;
    kit.applied("prj_a").await;
    kit.session("prj_a").await.batch_execute("SELECT").await.unwrap();
}

/// Tests that the sessions of a tenant do not end for the old snapshot of a dump.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_stay_while_a_dump_prevents_that_postgres_freezes_ids() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.node.kill();
    let superuser = kit.superuser("svc_node").await;
    end_autovacuum(&superuser).await;
    let (database, login) = (kit.name("prj_a"), kit.desired("prj_a").id.replace("dbs_", "dump_"));
    superuser.batch_execute(&format!("ALTER ROLE {login} PASSWORD '{PASSWORD}'")).await.unwrap();
    let (session, dump) = (kit.session("prj_a").await, kit.log_in(&login, PASSWORD, &database).await.unwrap());
    dump.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    set_oldest_id(&superuser, &database, 300_000_000).await;
    let admin = Admin::new(Server::parse(&kit.postgres.url()).unwrap());
    let client = admin.connect().await.unwrap();

    let limits = TransactionLimits { session_time: Duration::ZERO, ..TransactionLimits::default() };
    // The snapshot is so old that Postgres would freeze no id above this limit.
    terminate_harmful(&client, TransactionLimits { oldest_id: 50_000_000, ..limits }).await.unwrap();
    assert!(is_open(&session).await);
    // The snapshot is younger than this limit.
    terminate_harmful(&client, limits).await.unwrap();
    eventually("the end of the session", async || !is_open(&session).await).await;
    assert!(is_open(&dump).await);
}

/// Tests that prepared transactions are refused. They outlive their session, and only a session in their database can
/// end them.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_transactions_are_refused() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let session = kit.session("prj_a").await;
    assert!(session.batch_execute("BEGIN; CREATE TABLE t (); PREPARE TRANSACTION 'x'").await.is_err());
    // The node does not manage a server that permits them.
    let admin = kit.superuser("postgres").await;
    admin.batch_execute("ALTER SYSTEM SET max_prepared_transactions = 10").await.unwrap();
    kit.postgres.kill();
    kit.postgres.restart();
    eventually("the refusal", async || kit.node.log().contains("set max_prepared_transactions = 0")).await;
}
