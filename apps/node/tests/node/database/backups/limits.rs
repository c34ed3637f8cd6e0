//! Dumps that reach the limits of the node.

use std::sync::Arc;
use std::time::Duration;

use node::database::config::ProgramLimits;
use tokio::time::{sleep, timeout};

use super::rig::NEVER;
use super::{Rig, Source};
use crate::running::until;
use crate::storage::store::{Kind, TestStore};
use crate::timeout::TIMEOUT;

/// Counts the dumps that wait for the lock of a table, up to two.
const WAITING: &str = "SELECT least(count(*), 2) FROM pg_stat_activity
    WHERE query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock'";
const STORED: &str = "SELECT count(*) FROM svc.dumps WHERE stored";

/// Creates a database with a locked table. Its dump waits for the lock until it fails.
async fn create_locked(rig: &Rig, project: &str) -> Source {
    let source = rig.create(project).await;
    source.session.batch_execute("CREATE TABLE t ()").await.unwrap();
    source.session.batch_execute("BEGIN; LOCK TABLE t").await.unwrap();
    source
}

/// Changes the desired exports of a database.
fn set_exports(rig: &Rig, source: &mut Source, exports: &[&str]) {
    Arc::make_mut(&mut source.entry.desired).exports = exports.iter().copied().map(str::to_owned).collect();
    rig.registry.set(source.entry.clone());
}

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
    let Some(mut rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let source = create_locked(&rig, "prj_1").await;
    let error = rig.try_seal(&source, "opn_1").await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_permanent()), ("pg_dump takes longer than 10 s", true));
    source.session.batch_execute("COMMIT").await.unwrap();
    rig.programs.limits = ProgramLimits::default();
    rig.restart().await;
    rig.seal(&source, "opn_2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_of_an_operation_that_takes_too_long_ends_the_operation() {
    let limits = ProgramLimits { long_dump_time: Duration::from_secs(20), ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(mut rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let source = create_locked(&rig, "prj_1").await;
    let error = rig.try_seal(&source, "opn_1").await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().starts_with("the dump takes longer than"), "{error}");
    source.session.batch_execute("COMMIT").await.unwrap();
    rig.programs.limits = ProgramLimits::default();
    rig.restart().await;
    rig.seal(&source, "opn_2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_postgres_cannot_send_ends_the_operation() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let source = rig.create("prj_1").await;
    source.session.batch_execute("CREATE TABLE t (x bytea)").await.unwrap();
    let superuser = rig.superuser(&source.entry.credentials.database).await;
    // As text, a bytea has twice its size, and Postgres cannot allocate more than 1 GiB for it. Other functions need a
    // second copy of the value.
    let fill = "INSERT INTO public.t SELECT pg_read_binary_file('/dev/zero', 0, 536870911)";
    superuser.batch_execute(fill).await.unwrap();
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
    let limits = ProgramLimits { short_dump_time: Duration::from_secs(30), ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, Duration::from_secs(1), limits).await else { return };
    let long = [create_locked(&rig, "prj_1").await, create_locked(&rig, "prj_2").await];
    for source in &long {
        rig.registry.set(source.entry.clone());
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

/// Tests that databases whose operations take long do not delay the backups of others.
#[tokio::test(flavor = "multi_thread")]
async fn operations_leave_the_permits_to_other_dumps() {
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start(store, Duration::from_secs(1)).await else { return };
    let operated = [create_locked(&rig, "prj_1").await, create_locked(&rig, "prj_2").await];
    let other = rig.create("prj_3").await;
    let seals = async { tokio::join!(rig.try_seal(&operated[0], "opn_1"), rig.try_seal(&operated[1], "opn_2")) };
    let ((first, second), ()) = tokio::join!(seals, async {
        rig.wait_for(WAITING, 2).await;
        rig.registry.set(other.entry.clone());
        rig.wait_for("SELECT count(DISTINCT project) FROM svc.dumps WHERE stored", 1).await;
        for source in &operated {
            source.session.batch_execute("COMMIT").await.unwrap();
        }
    });
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_do_not_wait_for_long_dumps() {
    // All dumps of the schedule are long ones.
    let limits = ProgramLimits { short_dump_time: Duration::ZERO, ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, Duration::from_secs(1), limits).await else { return };
    let (long, mut exported) = (create_locked(&rig, "prj_1").await, rig.create("prj_2").await);
    rig.registry.set(long.entry.clone());
    rig.wait_for(WAITING, 1).await;
    set_exports(&rig, &mut exported, &["exp_1"]);
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE stored AND cause = 'exp_1'", 1).await;
    // The long dump has not ended.
    assert_eq!(rig.count("SELECT count(*) FROM svc.backups WHERE error IS NOT NULL").await, 0);
}

/// Tests that exports for which no user waits leave their permits to others.
#[tokio::test(flavor = "multi_thread")]
async fn exports_that_are_no_longer_desired_end() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let mut ended = [create_locked(&rig, "prj_1").await, create_locked(&rig, "prj_2").await];
    for (source, export) in ended.iter_mut().zip(["exp_1", "exp_2"]) {
        set_exports(&rig, source, &[export]);
    }
    rig.wait_for(WAITING, 2).await;
    for source in &mut ended {
        set_exports(&rig, source, &[]);
    }
    let mut other = rig.create("prj_3").await;
    set_exports(&rig, &mut other, &["exp_3"]);
    until("a report", || !rig.reported("export").is_empty()).await;
    assert!(rig.reported("export").iter().all(|report| report.contains("exp_3")), "{:?}", rig.reported("export"));
}

#[tokio::test(flavor = "multi_thread")]
async fn export_that_takes_too_long_fails() {
    let limits = ProgramLimits { export_time: Duration::from_secs(1), ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let mut source = create_locked(&rig, "prj_1").await;
    set_exports(&rig, &mut source, &["exp_1"]);
    until("the report", || !rig.reported("export").is_empty()).await;
    let report = rig.reported("export").pop_first().unwrap();
    assert!(report.contains("the dump takes longer than"), "{report}");
}

/// Tests an export whose dump is recorded as stored just before its time is over.
#[tokio::test(flavor = "multi_thread")]
async fn export_that_was_stored_at_the_end_of_its_time_has_not_failed() {
    let limits = ProgramLimits { export_time: Duration::from_secs(30), ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start_with(store, NEVER, limits).await else { return };
    let mut source = create_locked(&rig, "prj_1").await;
    set_exports(&rig, &mut source, &["exp_1"]);
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE cause = 'exp_1'", 1).await;
    // Only the task of the export reports it.
    let complete = "UPDATE svc.dumps SET stored = true, size_bytes = 1, sha256 = '', reported = true";
    rig.admin.batch_execute(complete).await.unwrap();
    until("the report", || !rig.reported("export").is_empty()).await;
    assert!(rig.reported("export").iter().all(|report| report.contains("sizeBytes")), "{:?}", rig.reported("export"));
    assert_eq!(rig.count("SELECT count(*) FROM svc.dumps").await, 1);
}
