//! Dumps that reach the limits of the node.

use std::time::Duration;

use node::database::config::ProgramLimits;
use tokio::time::{sleep, timeout};

use super::Rig;
use super::rig::NEVER;
use crate::storage::store::{Kind, TestStore};
use crate::timeout::TIMEOUT;

const STORED: &str = "SELECT count(*) FROM svc.dumps WHERE stored";

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_needs_too_much_memory_ends_its_operation() {
    let limits = ProgramLimits { memory_bytes: 200 << 20, ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let (large, small) = (rig.create("prj_1").await, rig.create("prj_2").await);
    // pg_dump holds a whole row in its memory.
    large.session.batch_execute("CREATE TABLE t AS SELECT repeat('x', 120000000) AS x").await.unwrap();
    let error = rig.try_seal(&large, "opn_1").await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("needs more than 200 MiB of memory"), "{error}");
    small.session.batch_execute("CREATE TABLE t AS SELECT 1 AS n").await.unwrap();
    rig.seal(&small, "opn_2").await;
    assert_eq!(rig.count(STORED).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_takes_too_long_ends_its_operation() {
    let limits = ProgramLimits { dump_time: Duration::from_secs(10), ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let source = rig.create("prj_1").await;
    source.session.batch_execute("CREATE TABLE t ()").await.unwrap();
    source.session.batch_execute("BEGIN; LOCK TABLE t").await.unwrap();
    let error = rig.try_seal(&source, "opn_1").await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_permanent()), ("pg_dump takes longer than 10 s", true));
    source.session.batch_execute("COMMIT").await.unwrap();
    rig.seal(&source, "opn_2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_postgres_cannot_send_ends_the_operation() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let source = rig.create("prj_1").await;
    // As text, a bytea has twice its size, and Postgres cannot allocate more than 1 GiB for it.
    let fill = "CREATE TABLE t AS SELECT convert_to(repeat('x', 536870911), 'UTF8') AS x";
    source.session.batch_execute(fill).await.unwrap();
    let error = rig.try_seal(&source, "opn_1").await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("a row that is too large for pg_dump"), "{error}");
}

/// Tests a dump with more locks than the watchdog permits.
#[tokio::test(flavor = "multi_thread")]
async fn dump_whose_session_is_ended_repeatedly_ends_its_operation() {
    const TERMINATE: &str = "
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock' AND usename LIKE 'dump_%'";
    let limits = ProgramLimits { repeated_error_time: Duration::ZERO, ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let source = rig.create("prj_1").await;
    source.session.batch_execute("CREATE TABLE t ()").await.unwrap();
    let locker = rig.superuser(&source.entry.credentials.database).await;
    locker.batch_execute("BEGIN; LOCK TABLE public.t").await.unwrap();
    for attempt in 1..=8 {
        let terminate = async {
            while rig.count(TERMINATE).await == 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // A dump that fails before it waits for the lock must not let this test wait forever.
        let (sealed, terminated) = tokio::join!(rig.try_seal(&source, "opn_1"), timeout(TIMEOUT, terminate));
        assert!(terminated.is_ok(), "{sealed:?}");
        let error = sealed.unwrap_err();
        assert!(error.to_string().contains("the database has too many tables"), "{error}");
        assert_eq!(error.is_permanent(), attempt == 8, "{error}");
    }
    locker.batch_execute("COMMIT").await.unwrap();
    rig.seal(&source, "opn_2").await;
}

/// Tests that databases whose dumps take long do not delay the backups of others.
#[tokio::test(flavor = "multi_thread")]
async fn long_dumps_leave_a_permit_to_short_ones() {
    const WAITING: &str = "SELECT least(count(*), 2) FROM pg_stat_activity
        WHERE query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock'";
    let limits = ProgramLimits { short_dump_time: Duration::from_secs(3), ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, Duration::from_secs(1), limits).await else { return };
    let mut long = Vec::new();
    for project in ["prj_1", "prj_2"] {
        let source = rig.create(project).await;
        source.session.batch_execute("CREATE TABLE t ()").await.unwrap();
        // A dump waits for this lock until it fails.
        source.session.batch_execute("BEGIN; LOCK TABLE t").await.unwrap();
        rig.registry.set(source.entry.clone());
        long.push(source);
    }
    rig.wait_for(WAITING, 2).await;
    let short = rig.create("prj_3").await;
    rig.registry.set(short.entry.clone());
    rig.wait_for(STORED, 1).await;
    assert_eq!(rig.count("SELECT count(*) FROM svc.dumps WHERE stored AND project = 'prj_3'").await, 1);
    assert_eq!(rig.count("SELECT count(*) FROM svc.backups WHERE error IS NOT NULL").await, 0);
    for source in &long {
        source.session.batch_execute("COMMIT").await.unwrap();
    }
    rig.wait_for("SELECT count(DISTINCT project) FROM svc.dumps WHERE stored", 3).await;
}
