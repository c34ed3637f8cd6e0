//! Dumps that fail or are interrupted, and stores that are full, down or slow.

use std::fs;
use std::time::Duration;

use chaos::NetworkFault;
use node::database::config::ProgramLimits;
use tokio::time::timeout;

use super::rig::{NEVER, folder_of};
use super::{Rig, Source};
use crate::running::until;
use crate::storage::store::{Kind, TestStore};

const UNSTORED: &str = "SELECT count(*) FROM svc.dumps WHERE NOT stored";
const STORED: &str = "SELECT count(*) FROM svc.dumps WHERE stored";

async fn fill(source: &Source) {
    let fill = "CREATE TABLE t AS SELECT i, sha512(i::text::bytea) AS x FROM generate_series(1, 300000) AS i";
    source.session.batch_execute(fill).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_dropped_dumps_leave_no_object() {
    let limits = ProgramLimits { repeated_error_time: Duration::ZERO, ..ProgramLimits::default() };
    let store = TestStore::start(Kind::Folder).await;
    let Some(mut rig) = Rig::start_with(store, NEVER, limits).await else { return };
    // The deletion of interrupted dumps at the start must not see the dumps of this test.
    let interrupted = "INSERT INTO svc.dumps (key, project, database, kind, epoch, created_at, days) \
         VALUES ('prj_0/interrupted', 'prj_0', 'dbs_0', 'scheduled', 1, now(), 1)";
    rig.admin.execute(interrupted, &[]).await.unwrap();
    rig.wait_for(UNSTORED, 0).await;
    let source = rig.create("prj_1").await;
    fill(&source).await;
    // Terminate `pg_dump` in the middle, as a drain does.
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'COPY%'";
    let (sealed, ()) = tokio::join!(rig.try_seal(&source, "opn_1"), async {
        while rig.count(terminate).await == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let error = sealed.unwrap_err();
    assert!(error.to_string().starts_with("pg_dump failed: ") && !error.is_permanent(), "{error}");
    // The terminated session can outlive its client for a moment.
    rig.wait_for("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%'", 0).await;

    // The caller stops waiting in the middle of the dump.
    let copies = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'active'";
    let is_copying = async {
        while rig.count(copies).await == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        sealed = rig.try_seal(&source, "opn_1") => panic!("the dump has ended: {sealed:?}"),
        () = is_copying => {}
    }
    let dumps = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'svc-node' AND datname LIKE 'db_%'";
    rig.wait_for(dumps, 0).await;

    // No file can be created, as in a full store.
    let folder = folder_of(&rig.store.config()).join("prj_1");
    // Create the folder, because the dump may end before it has written a file.
    fs::create_dir_all(&folder).unwrap();
    until("the end of aborts", || fs::read_dir(&folder).unwrap().next().is_none()).await;
    fs::remove_dir(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    let error = rig.try_seal(&source, "opn_1").await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_permanent()), ("the backup store failed", false));
    fs::remove_file(&folder).unwrap();

    assert_eq!((rig.count(UNSTORED).await, rig.count(STORED).await), (3, 0));
    rig.restart().await;
    rig.wait_for(UNSTORED, 0).await;
    assert_eq!(rig.store.blobs(), [""; 0]);

    // A repeated request returns the same generation.
    let sealed = rig.seal(&source, "opn_1").await;
    assert_eq!(rig.seal(&source, "opn_1").await, sealed);
    rig.restart().await;
    assert_eq!(rig.seal(&source, "opn_1").await, sealed);
    assert_eq!((rig.store.blobs(), rig.count(STORED).await), (vec![sealed.key], 1));

    // The login of backups cannot read this object.
    let database = &source.entry.credentials.database;
    rig.superuser(database).await.batch_execute("CREATE TABLE public.secret ()").await.unwrap();
    for attempt in 1..=8 {
        let error = rig.try_seal(&source, "opn_2").await.unwrap_err();
        assert!(error.to_string().ends_with(": permission denied for table secret"), "{error}");
        assert_eq!(error.is_permanent(), attempt == 8, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_fails_while_the_store_is_down_and_succeeds_with_a_slow_one() {
    let Some(rig) = Rig::start(TestStore::start(Kind::S3).await, NEVER).await else { return };
    let source = rig.create("prj_1").await;
    fill(&source).await;
    rig.store.proxy().set_fault(NetworkFault::Disconnect);
    let error = timeout(Duration::from_secs(120), rig.try_seal(&source, "opn_1")).await.unwrap().unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_permanent()), ("the backup store failed", false));
    rig.store.proxy().set_fault(NetworkFault::Delay(Duration::from_millis(2)));
    let sealed = rig.seal(&source, "opn_1").await;
    rig.store.proxy().set_fault(NetworkFault::None);
    let content = fs::read(rig.store_file(&sealed.key)).unwrap();
    assert_eq!(content.len() as u64, sealed.size_bytes);
}

/// Tests that a lock of a tenant does not stop the backups of others.
#[tokio::test(flavor = "multi_thread")]
async fn two_dumps_run_at_a_time() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let mut sources = Vec::new();
    for number in 1..=4 {
        let source = rig.create(&format!("prj_{number}")).await;
        source.session.batch_execute("CREATE TABLE t (i integer)").await.unwrap();
        source.session.batch_execute("BEGIN; LOCK TABLE t").await.unwrap();
        sources.push(source);
    }
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock'";
    let operations = ["opn_1", "opn_2", "opn_3", "opn_4"];
    let seals = futures_util::future::join_all(sources.iter().zip(operations).map(|(it, id)| rig.try_seal(it, id)));
    let unlock = async {
        rig.wait_for(waiting, 2).await;
        assert_eq!(rig.count("SELECT count(*) FROM svc.dumps").await, 2);
        for source in &sources {
            source.session.batch_execute("COMMIT").await.unwrap();
        }
    };
    let (sealed, ()) = tokio::join!(seals, unlock);
    assert!(sealed.into_iter().all(|sealed| sealed.is_ok()));
    assert_eq!(rig.count(STORED).await, 4);
}
