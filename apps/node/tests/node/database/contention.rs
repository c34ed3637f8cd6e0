//! Sessions of a tenant that hold what the node or other tenants need.

use std::iter::repeat_n;
use std::time::Duration;

use node::database::admin::{Admin, AdminConnection};
use node::database::autovacuum::{WorkerLimits, terminate_slow_workers};
use node::database::connections::{ConnectionGuard, ConnectionLimits};
use node::database::notify_queue::NotifyQueue;
use node::database::server::Server;
use tokio_postgres::Client;

use super::kit::{Kit, PASSWORD, eventually, number};
use crate::visitor::get_text;

#[tokio::test(flavor = "multi_thread")]
async fn session_that_fills_the_lock_table_ends() {
    let Some(mut kit) = Kit::start().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let admin = kit.superuser("svc_node").await;
    let watches = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'RELEASE before%'";
    eventually("the watchdog", async || number(&admin, watches).await == 1).await;
    let session = kit.session("prj_a").await;
    // Advisory locks of a session survive the error.
    let fill = "SELECT count(pg_advisory_lock(i)) FROM generate_series(1, 2000000) i";
    assert!(session.batch_execute(fill).await.is_err());
    eventually("the end of the session", async || session.batch_execute("SELECT").await.is_err()).await;
    let (app, database) = (kit.app("prj_b"), kit.name("prj_b"));
    eventually("a login", async || kit.log_in(&app, PASSWORD, &database).await.is_ok()).await;
    kit.add_token("prj_b", None);
    kit.applied("prj_b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_keeps_notifications_in_the_queue_ends() {
    let Some((mut kit, address)) = Kit::start_with_metrics().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let admin = Admin::new(Server::parse(&kit.postgres.url()).unwrap());
    let client = admin.connect().await.unwrap();
    // 100 of the 1,048,575 pages.
    let mut queue = NotifyQueue::prepare(&client, 0.0001).await.unwrap();
    // The node's own sessions and one that runs a query are older, and stay open.
    let (trusted, busy) = (kit.superuser("svc_node").await, kit.session("prj_b").await);
    let (listening, later) = (kit.session("prj_a").await, kit.session("prj_b").await);
    let running = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(1000)' AND state = 'active'";
    let query = tokio::spawn(async move { busy.batch_execute("SELECT pg_sleep(1000)").await });
    eventually("the query", async || number(&client, running).await == 1).await;
    listening.batch_execute("LISTEN channel").await.unwrap();
    let pid = number(&listening, "SELECT pg_backend_pid()").await;
    let later_pid = number(&later, "SELECT pg_backend_pid()").await;
    for session in [&trusted, &listening, &later] {
        session.batch_execute("BEGIN; SELECT 1").await.unwrap();
    }
    // Each notification takes a page of the queue.
    let notify = "SELECT count(pg_notify('channel', i || repeat('x', 7900))) FROM generate_series(1, 300) i";
    let notifying = kit.session("prj_a").await;
    assert_eq!(queue.check(&client).await.unwrap().ended, 0);
    notifying.batch_execute(notify).await.unwrap();
    eventually("the metric", async || {
        let metrics = get_text(&format!("http://{address}/metrics")).await;
        let usage = metrics.lines().find_map(|line| line.strip_prefix("svc_node_database_notification_queue_usage "));
        usage.is_some_and(|usage| usage.parse::<f64>().unwrap() > 0.0001)
    })
    .await;

    // Younger transactions are kept.
    let old = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {later_pid} AND xact_start < now() - interval '2 seconds'"
    );
    eventually("old transactions", async || number(&client, &old).await == 1).await;
    assert_eq!(queue.check(&client).await.unwrap().ended, 1);
    // The session leaves the queue after it has sent its error, and then the activity.
    let exists = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    eventually("the end of the session", async || number(&client, &exists).await == 0).await;
    assert!(listening.batch_execute("SELECT").await.is_err());
    let checked = queue.check(&client).await.unwrap();
    assert!(checked.ended == 0 && checked.usage < 0.0001, "{checked:?}");
    for session in [&trusted, &later, &notifying] {
        session.batch_execute("SELECT").await.unwrap();
    }

    assert_eq!(number(&client, running).await, 1);
    query.abort();

    // No session listens any more, so nothing stays in the queue.
    notifying.batch_execute(notify).await.unwrap();
    assert_eq!(queue.check(&client).await.unwrap().ended, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_above_a_connection_limit_that_the_tenant_lifted_ends() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let tokens: Vec<String> = (0..9).map(|_| kit.add_token("prj_a", None)).collect();
    kit.applied("prj_a").await;
    let database = kit.name("prj_a");
    let lift = format!("ALTER DATABASE {database} CONNECTION LIMIT -1");
    // One session more than the limit of 60.
    let users = repeat_n(kit.app("prj_a"), 20).chain(tokens.into_iter().flat_map(|token| repeat_n(token, 5))).take(61);
    let mut sessions: Vec<Client> = Vec::new();
    for user in users {
        let mut opened = None;
        // The sweep may repair the limit before the login.
        eventually("a session", async || {
            opened = kit.log_in(&user, PASSWORD, &database).await.ok();
            if let (None, Some(session)) = (&opened, sessions.get(1)) {
                let _ = session.batch_execute(&lift).await;
            }
            opened.is_some()
        })
        .await;
        sessions.extend(opened);
    }
    let newest = sessions.pop().unwrap();
    eventually("the end of the newest session", async || newest.batch_execute("SELECT").await.is_err()).await;
    sessions[0].batch_execute("SELECT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_with_the_most_sessions_lose_the_newest_when_connections_run_out() {
    let Some(mut kit) = Kit::start().await else { return };
    let mut sessions = Vec::new();
    for (project, count) in [("prj_a", 8), ("prj_b", 6), ("prj_c", 2)] {
        kit.enable(project).await;
        for number in 0..count {
            sessions.push((kit.session(project).await, number < 5));
        }
    }
    let admin = Admin::new(Server::parse(&kit.postgres.url()).unwrap());
    let client = admin.connect().await.unwrap();
    for (used, ended) in [(1.0, 0), (0.0, 4)] {
        let limits = ConnectionLimits { used, ..ConnectionLimits::default() };
        let guard = ConnectionGuard::prepare(&client, limits).await.unwrap();
        assert_eq!(guard.check(&client).await.unwrap(), ended, "{used}");
    }
    for (session, is_kept) in &sessions {
        assert_eq!(session.batch_execute("SELECT").await.is_ok(), *is_kept);
    }
}

/// Starts Postgres with this number of autovacuum workers. Waits until one of them vacuums the table `t` of `prj_a`, and
/// returns its process id.
async fn start_vacuum(kit: &mut Kit, workers: u32) -> (AdminConnection, i64) {
    const FIND: &str = "
        SELECT coalesce(max(pid), 0) FROM pg_stat_activity
        WHERE backend_type = 'autovacuum worker' AND query LIKE 'autovacuum: VACUUM%public.t%'";
    let superuser = kit.superuser("postgres").await;
    for setting in ["autovacuum_naptime = '1s'".to_owned(), format!("autovacuum_max_workers = {workers}")] {
        superuser.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await.unwrap();
    }
    kit.postgres.kill();
    kit.postgres.restart();
    let session = kit.session("prj_a").await;
    session.batch_execute("INSERT INTO t SELECT generate_series(1, 200000)").await.unwrap();
    session.batch_execute("DELETE FROM t").await.unwrap();
    let admin = Admin::new(Server::parse(&kit.postgres.url()).unwrap());
    let client = admin.connect().await.unwrap();
    let mut pid = 0;
    eventually("the vacuum", async || {
        pid = number(&client, FIND).await;
        pid > 0
    })
    .await;
    (client, pid)
}

/// Ends the workers above these limits, and waits for the end of this one. Postgres may have started others.
async fn assert_ended(client: &AdminConnection, limits: WorkerLimits, pid: i64) {
    assert!(terminate_slow_workers(client, limits).await.unwrap() >= 1);
    let exists = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    eventually("the end of the worker", async || number(client, &exists).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_autovacuum_worker_ends_while_all_workers_are_busy() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.node.kill();
    let create =
        "CREATE TABLE t (n bigint) WITH (autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_cost_delay = 100)";
    kit.session("prj_a").await.batch_execute(create).await.unwrap();
    let defaults = WorkerLimits::default();
    let short = WorkerLimits { time: Duration::ZERO, surplus_time: Duration::ZERO, ..defaults };

    // Other workers are free.
    let (client, pid) = start_vacuum(&mut kit, 10).await;
    assert_eq!(terminate_slow_workers(&client, short).await.unwrap(), 0);
    // The snapshot of the worker becomes old.
    for _ in 0..20 {
        client.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    }
    assert_eq!(terminate_slow_workers(&client, defaults).await.unwrap(), 0);
    assert_ended(&client, WorkerLimits { ids: 10, ..defaults }, pid).await;
    drop(client);

    // The worker does not notice that the database is above the age of the failsafe.
    let (client, pid) = start_vacuum(&mut kit, 10).await;
    client.batch_execute("SET vacuum_failsafe_age = 0").await.unwrap();
    assert_eq!(terminate_slow_workers(&client, defaults).await.unwrap(), 0);
    assert_ended(&client, short, pid).await;
    drop(client);

    let (client, pid) = start_vacuum(&mut kit, 1).await;
    assert_eq!(terminate_slow_workers(&client, defaults).await.unwrap(), 0);
    assert_ended(&client, short, pid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_cannot_block_its_revocation() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let database = kit.name("prj_a");
    for lock in [
        "ALTER ROLE $ PASSWORD 'x'",
        "ALTER ROLE $ SET work_mem = '1MB'",
        "RESET ROLE; GRANT CONNECT ON DATABASE @ TO PUBLIC",
    ] {
        let token = kit.add_token("prj_a", None);
        kit.applied("prj_a").await;
        let session = kit.log_in(&token, PASSWORD, &database).await.unwrap();
        let lock = lock.replace('$', &token).replace('@', &database);
        // Newer versions of Postgres refuse some of these statements.
        let _ = session.batch_execute(&format!("SET ROLE NONE; BEGIN; {lock}")).await;
        kit.change("prj_a", |desired| desired.tokens.clear());
        kit.applied("prj_a").await;
        assert!(kit.log_in(&token, PASSWORD, &database).await.is_err(), "{lock}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_blocks_new_sessions_does_not_delay_revocations() {
    const BLOCKED: &str = "
        SELECT count(*) FROM pg_locks
        WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = 'pg_class'::regclass";
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let tokens: Vec<String> = (0..10).map(|_| kit.add_token("prj_a", None)).collect();
    kit.applied("prj_a").await;
    let (reader, writer) = (kit.session("prj_a").await, kit.session("prj_a").await);
    let grant = format!("CREATE TABLE t (); GRANT SELECT ON t TO {}", tokens.join(", "));
    reader.batch_execute(&grant).await.unwrap();
    let admin = kit.superuser("svc_node").await;
    reader.batch_execute("BEGIN; SELECT FROM pg_class").await.unwrap();
    let blocking = tokio::spawn(async move { writer.batch_execute("VACUUM FULL pg_class").await });
    eventually("the lock", async || number(&admin, BLOCKED).await == 1).await;
    kit.change("prj_a", |desired| desired.tokens.clear());
    // An attempt to open a session takes 10 seconds, so an attempt for each token would take longer than this waits.
    kit.applied("prj_a").await;
    reader.batch_execute("COMMIT").await.unwrap();
    blocking.await.unwrap().unwrap();
    let roles = "SELECT count(*) FROM pg_roles WHERE rolname ~ '^tok_'";
    eventually("the end of the roles", async || number(&admin, roles).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_a_login_owns_is_dumped() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let token = kit.add_token("prj_a", None);
    kit.applied("prj_a").await;
    for user in [kit.app("prj_a"), token] {
        let session = kit.log_in(&user, PASSWORD, &kit.name("prj_a")).await.unwrap();
        session.batch_execute("SET ROLE NONE; SELECT lo_from_bytea(0, 'large')").await.unwrap();
    }
    let generation = kit.generation("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE later ()").await.unwrap();
    kit.restore("prj_a", &generation).await;
    let session = kit.session("prj_a").await;
    assert_eq!(number(&session, "SELECT count(*) FROM pg_largeobject_metadata WHERE lo_get(oid) = 'large'").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_in_the_database_of_another_project_ends() {
    let Some(mut kit) = Kit::start().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let (database, other) = (kit.name("prj_a"), kit.app("prj_b"));
    let own = kit.session("prj_a").await;
    let admit = format!("GRANT CONNECT ON DATABASE {database} TO {other}");
    let mut admitted = None;
    // The sweep may revoke the privilege again before the login.
    eventually("a session", async || {
        own.batch_execute(&admit).await.unwrap();
        admitted = kit.log_in(&other, PASSWORD, &database).await.ok();
        admitted.is_some()
    })
    .await;
    let admitted = admitted.unwrap();
    eventually("the end of the session", async || admitted.batch_execute("SELECT").await.is_err()).await;
    own.batch_execute("SELECT").await.unwrap();
}
