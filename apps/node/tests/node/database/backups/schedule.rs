//! The schedule, exports, and reports.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Database, DatabaseReport, ExportReport, GenerationKind, GenerationReport};

use super::{Rig, Source};
use crate::running::until;
use crate::storage::store::{Kind, TestStore};

const SCHEDULED: &str = "SELECT count(*) FROM svc.dumps WHERE stored AND kind = 'scheduled'";
/// Selects a time that changes when the schedule makes or skips a backup.
const SCHEDULED_AT: &str = "SELECT (extract(epoch FROM scheduled_at) * 1000)::bigint FROM svc.backups";

/// Changes the desired state of the database.
fn change(rig: &Rig, source: &mut Source, change: impl FnOnce(&mut Database)) {
    change(Arc::make_mut(&mut source.entry.desired));
    rig.registry.set(source.entry.clone());
}

/// Waits until the schedule has made or skipped two backups, so that the second one began after this call.
async fn wait_for_two_points(rig: &Rig) {
    for _ in 0..2 {
        let before = rig.count(SCHEDULED_AT).await;
        while rig.count(SCHEDULED_AT).await == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn last_report(rig: &Rig) -> DatabaseReport {
    let reports = rig.reports.lock().unwrap();
    let last = reports.received.iter().rfind(|report| report.kind == "database").unwrap();
    serde_json::from_value(last.report.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_changed_databases_are_dumped() {
    let Some(mut rig) = Rig::start(TestStore::start(Kind::Folder).await, Duration::from_secs(1)).await else { return };
    let source = rig.create("prj_1").await;
    rig.registry.set(source.entry.clone());
    rig.restart().await;
    rig.wait_for(SCHEDULED, 1).await;
    wait_for_two_points(&rig).await;
    assert_eq!(rig.count(SCHEDULED).await, 1, "an empty database did not change");
    let generation = rig.reported("generation").pop_first().unwrap();
    let generation: GenerationReport = serde_json::from_str(&generation).unwrap();
    assert_eq!(
        (generation.kind, generation.epoch, generation.database),
        (GenerationKind::Scheduled, 1, source.entry.desired.id.clone())
    );
    // The control plane may have lost the report.
    for is_restart in [true, false] {
        rig.wait_for("SELECT count(*) FROM svc.dumps WHERE NOT reported", 0).await;
        rig.reports.lock().unwrap().received.retain(|report| report.kind != "generation");
        if is_restart {
            rig.restart().await;
        } else {
            rig.backups.report_again();
        }
        until("the repeated report", || !rig.reported("generation").is_empty()).await;
    }
    until("the state", || last_report(&rig).fresh_at.is_some()).await;
    assert!(last_report(&rig).checked_at.is_some() && last_report(&rig).backup_error.is_none());

    for (expected, change) in [
        (2, "CREATE TABLE t (i serial)"),
        (3, "INSERT INTO t DEFAULT VALUES"),
        (4, "SELECT nextval('t_i_seq')"),
        (5, "SELECT lo_from_bytea(0, 'x')"),
        (6, "TRUNCATE t"),
    ] {
        // Postgres flushes the counters of a session when the session ends.
        let session = rig.session(&source.entry.credentials).await;
        session.batch_execute(change).await.unwrap();
        drop(session);
        rig.wait_for(SCHEDULED, expected).await;
        wait_for_two_points(&rig).await;
        assert_eq!(rig.count(SCHEDULED).await, expected, "{change}");
    }
    // A crash resets the counters, so it counts as a change.
    rig.postgres.kill();
    rig.postgres.restart();
    rig.reconnect().await;
    rig.wait_for(SCHEDULED, 7).await;
    until("the state after a failure", || last_report(&rig).backup_error.is_none()).await;

    // Postgres adds the writes of a statement to the counters when the statement ends.
    wait_for_two_points(&rig).await;
    let before = rig.count(SCHEDULED).await;
    let other = rig.superuser(&source.entry.credentials.database).await;
    let statement = tokio::spawn(async move { other.batch_execute("SELECT pg_sleep(600)").await });
    // The number may grow further between two polls.
    rig.wait_for(&format!("SELECT least(({SCHEDULED}), {})", before + 3), before + 3).await;
    statement.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_backup_is_reported_and_repeated() {
    let Some(mut rig) = Rig::start(TestStore::start(Kind::S3).await, Duration::from_secs(1)).await else { return };
    let mut source = rig.create("prj_1").await;
    change(&rig, &mut source, |_| ());
    rig.restart().await;
    rig.wait_for(SCHEDULED, 1).await;
    rig.admin.batch_execute("ALTER ROLE dump_00000000000000000000000001 NOLOGIN").await.unwrap();
    source.session.batch_execute("CREATE TABLE t ()").await.unwrap();
    until("an error", || last_report(&rig).backup_error.is_some()).await;
    let expected = "pg_dump failed: the connection failed or ended. The platform retries the backup. \
                    Earlier backups are not affected";
    assert_eq!(last_report(&rig).backup_error.unwrap(), expected);
    rig.admin.batch_execute("ALTER ROLE dump_00000000000000000000000001 LOGIN").await.unwrap();
    rig.wait_for(SCHEDULED, 2).await;
    until("the success", || last_report(&rig).backup_error.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_pg_restore_is_reported_and_backups_continue() {
    let Some(mut rig) = Rig::start(TestStore::start(Kind::Folder).await, Duration::from_secs(1)).await else { return };
    let source = rig.create("prj_1").await;
    rig.registry.set(source.entry.clone());
    rig.change_version_of_pg_restore("99.1");
    rig.restart().await;
    rig.wait_for(SCHEDULED, 1).await;
    until("the error", || last_report(&rig).backup_error.is_some()).await;
    let error = last_report(&rig).backup_error.unwrap();
    assert!(error.starts_with("pg_restore has version 99 and Postgres "), "{error}");
    // The programs are replaced while the node runs.
    let server = rig.count("SELECT current_setting('server_version_num')::bigint / 10000").await;
    rig.change_version_of_pg_restore(&format!("{server}.1"));
    until("the end of the error", || last_report(&rig).backup_error.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_are_made_once_and_reported_until_they_are_accepted() {
    let Some(mut rig) = Rig::start(TestStore::start(Kind::Folder).await, super::rig::NEVER).await else { return };
    let mut source = rig.create("prj_1").await;
    source.session.batch_execute("CREATE TABLE t AS SELECT 42 AS answer").await.unwrap();
    // The report is lost, and the node restarts.
    rig.reports.lock().unwrap().are_lost = true;
    change(&rig, &mut source, |desired| desired.exports = vec!["exp_1".to_owned()]);
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE stored AND kind = 'export'", 1).await;
    rig.restart().await;
    assert!(rig.reported("export").is_empty());
    rig.reports.lock().unwrap().are_lost = false;
    rig.restart().await;
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE reported", 1).await;
    let report = rig.reported("export").pop_first().unwrap();
    let ExportReport::Stored(report) = serde_json::from_str(&report).unwrap() else { panic!("{report}") };
    assert!(report.key.starts_with("prj_1/exports/2") && report.id == "exp_1", "{report:?}");
    assert_eq!(rig.store.blobs(), [report.key]);
    assert!(rig.reported("generation").is_empty(), "an export is not a generation");

    rig.admin.batch_execute("ALTER ROLE dump_00000000000000000000000001 NOLOGIN").await.unwrap();
    change(&rig, &mut source, |desired| desired.exports = vec!["exp_1".to_owned(), "exp_2".to_owned()]);
    until("the failed export", || rig.reported("export").iter().any(|it| it.contains("exp_2"))).await;
    let failed = rig.reported("export").into_iter().find(|it| it.contains("exp_2")).unwrap();
    assert!(failed.contains("pg_dump failed"), "{failed}");
    assert_eq!(rig.store.blobs().len(), 1);

    // Without a store, an export fails immediately.
    rig.restart_without_store().await;
    change(&rig, &mut source, |desired| desired.exports = vec!["exp_3".to_owned()]);
    until("the refused export", || rig.reported("export").iter().any(|it| it.contains("exp_3"))).await;
    let refused = rig.reported("export").into_iter().find(|it| it.contains("exp_3")).unwrap();
    assert!(refused.contains("this node stores no backups"), "{refused}");
}
