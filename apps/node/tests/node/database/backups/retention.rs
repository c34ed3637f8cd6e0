//! Deletion of objects.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use node::database::backup::FullState;
use protocol::{Database, GenerationRef, GenerationReport};

use super::{Rig, Source};
use crate::running::until;
use crate::storage::store::{Kind, TestStore};

/// Inserts exports. The first one is the newest.
const EXPORTS: &str = "
    INSERT INTO svc.dumps (key, project, database, kind, epoch, created_at, stored, size_bytes, sha256, days)
    SELECT 'prj_1/exports/' || i, 'prj_1', 'dbs_1', 'export', 1, now() - i * interval '1 hour', true, 0, '', 7
    FROM generate_series(1, 7) AS i";

#[tokio::test(flavor = "multi_thread")]
async fn expired_objects_are_deleted_but_not_the_last_generation() {
    for kind in [Kind::Folder, Kind::S3] {
        let Some(mut rig) = Rig::start(TestStore::start(kind).await, Duration::from_secs(1)).await else { return };
        let source = rig.create("prj_1").await;
        let mut keys = Vec::new();
        for operation in ["opn_1", "opn_2", "opn_3"] {
            keys.push(rig.seal(&source, operation).await.key);
        }
        let GenerationReport { key, size_bytes, sha256, .. } = rig.seal(&source, "opn_needed").await;
        rig.seal(&source, "opn_ended").await;
        // Files without a record: an old object of a lost node, a young one, and one with another name.
        let old = "prj_1/20200101T000000Z-00000000-0000-4000-8000-000000000000.dump";
        for name in [old, "prj_1/29990101T000000Z-1.dump", "prj_1/notes"] {
            fs::write(rig.store_file(name), "x").unwrap();
        }
        // These generations are kept longer, because their database was removed.
        let expire = "UPDATE svc.dumps SET created_at = now() - interval '31 days'";
        // The retention of this generation has just ended. A restore may have begun before.
        let end_retention = "UPDATE svc.dumps SET created_at = now() - interval '30 days' WHERE cause = 'opn_ended'";
        rig.backups.removed("prj_1").await.unwrap();
        rig.restart_without_state().await;
        rig.admin.execute(expire, &[]).await.unwrap();
        rig.admin.execute(end_retention, &[]).await.unwrap();
        rig.admin.execute("UPDATE svc.dumps SET keep_until = NULL WHERE cause <> 'opn_2'", &[]).await.unwrap();
        rig.admin
            .execute("UPDATE svc.dumps SET created_at = created_at + interval '1 hour' WHERE cause = 'opn_3'", &[])
            .await
            .unwrap();
        rig.admin.batch_execute(EXPORTS).await.unwrap();
        rig.registry.set(source.entry.clone());
        rig.restart_without_state().await;
        rig.wait_for("SELECT count(*) FROM svc.dumps WHERE kind = 'scheduled' AND stored", 1).await;
        let kept = rig.count("SELECT count(*) FROM svc.dumps WHERE kind <> 'scheduled'").await;
        assert_eq!(kept, 12, "deleted before the first state of the control plane");

        // The generation is the source of a database that does not exist yet.
        let mut part = Database::clone(&source.entry.desired);
        part.source = Some(GenerationRef { key: key.clone(), size_bytes, sha256 });
        rig.backups.desire("prj_1", Some(&Arc::new(part)));
        rig.backups.complete_desired(FullState::default());
        rig.wait_for("SELECT count(*) FROM svc.dumps WHERE cause = 'opn_1'", 0).await;
        rig.wait_for("SELECT count(*) FROM svc.dumps WHERE key LIKE '%/exports/%'", 5).await;
        assert_eq!(rig.count("SELECT count(*) FROM svc.dumps WHERE key ~ '/exports/[1-5]$'").await, 5);
        // The scheduled generation is now the last one, so it is kept.
        rig.wait_for("SELECT count(*) FROM svc.dumps WHERE cause = 'opn_3'", 0).await;
        let began = std::time::Instant::now();
        while rig.store.blobs().iter().any(|name| name.ends_with(old)) {
            assert!(began.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let left: Vec<String> =
            rig.store.blobs().iter().map(|name| name.rsplit('/').next().unwrap().to_owned()).collect();
        assert_eq!(left.len(), 6, "{left:?}");
        assert!(left.iter().any(|name| key.ends_with(name.as_str())), "{left:?}");
        assert!(keys[1].ends_with(&left[0]) || left.iter().any(|name| keys[1].ends_with(name.as_str())), "{left:?}");
        assert!(left.contains(&"notes".to_owned()) && left.contains(&"29990101T000000Z-1.dump".to_owned()), "{left:?}");
        assert_eq!(rig.count("SELECT count(*) FROM svc.dumps WHERE stored AND kind <> 'export'").await, 4);
        assert_eq!(rig.count("SELECT count(*) FROM svc.dumps WHERE cause = 'opn_ended'").await, 1);
    }
}

/// Pauses the deletion of the row of `prj_1/first` while the table `paused` has a row.
const PAUSE: &str = "
    CREATE TABLE public.paused AS SELECT true AS is_paused;
    CREATE FUNCTION public.pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        WHILE EXISTS (SELECT FROM public.paused) LOOP PERFORM pg_sleep(0.01); END LOOP;
        RETURN OLD;
    END $$;
    CREATE TRIGGER pause BEFORE DELETE ON svc.dumps FOR EACH ROW WHEN (OLD.key = 'prj_1/first')
        EXECUTE FUNCTION public.pause()";

fn interrupted(key: &str) -> String {
    format!(
        "INSERT INTO svc.dumps (key, project, database, kind, epoch, created_at, days)
         VALUES ('{key}', 'prj_1', 'dbs_1', 'final', 1, now(), 30)"
    )
}

/// Creates a table and locks it, so that a dump waits.
async fn lock_table(source: &Source) {
    source.session.batch_execute("CREATE TABLE t AS SELECT 1 AS n").await.unwrap();
    source.session.batch_execute("BEGIN; LOCK TABLE t").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_that_ends_during_the_deletion_of_interrupted_ones_is_kept() {
    let Some(mut rig) = Rig::start(TestStore::start(Kind::Folder).await, Duration::from_secs(1)).await else { return };
    let source = rig.create("prj_1").await;
    rig.restart_without_state().await;
    rig.admin.batch_execute(PAUSE).await.unwrap();
    lock_table(&source).await;
    rig.admin.batch_execute(&interrupted("prj_1/first")).await.unwrap();
    let (sealed, ()) = tokio::join!(rig.seal(&source, "opn_1"), async {
        rig.wait_for("SELECT count(*) FROM svc.dumps", 2).await;
        rig.admin.batch_execute(&interrupted("prj_1/last")).await.unwrap();
        // The deletion selects all three dumps, and pauses at the first one. The second one ends in the meantime.
        rig.apply_state();
        rig.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", 1).await;
        source.session.batch_execute("COMMIT").await.unwrap();
    });
    rig.admin.batch_execute("DELETE FROM public.paused").await.unwrap();
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE key = 'prj_1/last'", 0).await;
    assert_eq!(rig.seal(&source, "opn_1").await, sealed);
    assert_eq!(fs::metadata(rig.store_file(&sealed.key)).unwrap().len(), sealed.size_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn dump_whose_deletion_has_begun_is_never_stored() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, Duration::from_secs(1)).await else { return };
    let source = rig.create("prj_1").await;
    lock_table(&source).await;
    let (sealed, ()) = tokio::join!(rig.try_seal(&source, "opn_1"), async {
        rig.wait_for("SELECT count(*) FROM svc.dumps", 1).await;
        rig.admin.batch_execute("UPDATE svc.dumps SET abandoned = true").await.unwrap();
        source.session.batch_execute("COMMIT").await.unwrap();
    });
    assert!(!sealed.unwrap_err().is_permanent());
    let sealed = rig.seal(&source, "opn_1").await;
    rig.wait_for("SELECT count(*) FROM svc.dumps", 1).await;
    assert_eq!(rig.store.blobs(), [sealed.key]);
}

/// Inserts an export whose digest is due before all others.
const UNREADABLE: &str = "
    INSERT INTO svc.dumps (key, project, database, kind, epoch, created_at, stored, size_bytes, sha256, days, checked_at)
    VALUES ('prj_2/loop', 'prj_2', 'dbs_2', 'export', 1, now(), true, 0, '', 7, now() - interval '1 year')";

#[tokio::test(flavor = "multi_thread")]
async fn object_that_the_store_refuses_does_not_stop_the_upkeep_of_others() {
    let Some(mut rig) = Rig::start(TestStore::start(Kind::Folder).await, Duration::from_secs(1)).await else { return };
    let source = rig.create("prj_1").await;
    let locked = rig.seal(&source, "opn_1").await.key;
    for operation in ["opn_2", "opn_3"] {
        rig.seal(&source, operation).await;
    }
    rig.restart_without_state().await;
    // An object is not deleted if the file of its unfinished upload is a folder, or if its own folder is a file.
    let orphans = ["prj_1/20200101T000000Z-1.dump", "prj_1/20200101T000000Z-2.dump"];
    for orphan in orphans {
        fs::write(rig.store_file(orphan), "x").unwrap();
    }
    let folders = [locked.as_str(), orphans[0]].map(|key| rig.store_file(&format!("{key}#1")));
    for folder in &folders {
        fs::create_dir(folder).unwrap();
    }
    fs::write(rig.store_file("prj_1/file"), "").unwrap();
    // The objects of this project can be neither listed nor read.
    fs::create_dir(rig.store_file("prj_2")).unwrap();
    symlink("loop", rig.store_file("prj_2/loop")).unwrap();
    for statement in [
        interrupted("prj_1/file/1").as_str(),
        interrupted("prj_1/later").as_str(),
        UNREADABLE,
        "UPDATE svc.dumps SET created_at = now() - interval '32 days' WHERE cause = 'opn_1'",
        "UPDATE svc.dumps SET created_at = now() - interval '31 days' WHERE cause = 'opn_2'",
        "UPDATE svc.dumps SET checked_at = now() - interval '1 month' WHERE cause = 'opn_3'",
    ] {
        rig.admin.batch_execute(statement).await.unwrap();
    }
    rig.backups.desire("prj_1", Some(&source.entry.desired));
    rig.apply_state();
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE key = 'prj_1/later' OR cause = 'opn_2'", 0).await;
    let checked = "SELECT count(*) FROM svc.dumps WHERE cause = 'opn_3' AND checked_at > now() - interval '1 hour'";
    rig.wait_for(checked, 1).await;
    until("the end of the orphan", || !rig.store_file(orphans[1]).exists()).await;
    let kept = "SELECT count(*) FROM svc.dumps WHERE key IN ('prj_1/file/1', 'prj_2/loop') OR cause = 'opn_1'";
    assert_eq!(rig.count(kept).await, 3);
    assert!(rig.store_file(orphans[0]).exists());

    for folder in &folders {
        fs::remove_dir(folder).unwrap();
    }
    fs::remove_file(rig.store_file("prj_1/file")).unwrap();
    fs::remove_file(rig.store_file("prj_2/loop")).unwrap();
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE NOT stored OR cause = 'opn_1'", 0).await;
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE key = 'prj_2/loop' AND damaged", 1).await;
    until("the end of the orphan", || !rig.store_file(orphans[0]).exists()).await;
}

/// Tests that a clock that is set forward does not end a retention.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_expires_while_the_clocks_differ() {
    let store = TestStore::start(Kind::Folder).await;
    let Some(rig) = Rig::start(store, Duration::from_secs(1)).await else { return };
    let hours = Duration::from_secs(2 * 60 * 60);
    for skewed in [node::clock::now() + hours, node::clock::now() - hours] {
        rig.clock.observe(skewed);
        let source = rig.create(if skewed > node::clock::now() { "prj_1" } else { "prj_2" }).await;
        for operation in ["a", "b"] {
            rig.seal(&source, &format!("{operation} {}", source.entry.project)).await;
        }
        // The upkeep deletes interrupted dumps first. When the second one is gone, the upkeep that deleted the first
        // one is complete.
        for key in ["interrupted/1", "interrupted/2"] {
            let expire = "UPDATE svc.dumps SET created_at = now() - interval '31 days'";
            rig.admin.batch_execute(&format!("{expire}; {}", interrupted(key))).await.unwrap();
            rig.wait_for("SELECT count(*) FROM svc.dumps WHERE NOT stored", 0).await;
        }
        assert_eq!(rig.count("SELECT count(*) FROM svc.dumps").await, 2);
        rig.clock.observe(node::clock::now());
        // The newest generation stays.
        rig.wait_for("SELECT count(*) FROM svc.dumps", 1).await;
        rig.admin.batch_execute("DELETE FROM svc.dumps").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_generations_are_reported_again_only_for_existing_databases() {
    let store = TestStore::start(Kind::Folder).await;
    let Some(mut rig) = Rig::start(store, super::rig::NEVER).await else { return };
    let (removed, existing) = (rig.create("prj_1").await, rig.create("prj_2").await);
    rig.seal(&removed, "opn_1").await;
    let kept = rig.seal(&existing, "opn_2").await;
    // The node keeps the generations of a removed database for longer.
    rig.backups.removed("prj_1").await.unwrap();
    rig.admin.batch_execute("DELETE FROM svc.databases WHERE project = 'prj_1'").await.unwrap();
    rig.registry.set(existing.entry.clone());
    let unreported = "SELECT count(*) FROM svc.dumps WHERE NOT reported";
    rig.restart().await;
    rig.wait_for(unreported, 0).await;
    rig.admin.batch_execute("UPDATE svc.dumps SET created_at = now() - interval '31 days'").await.unwrap();
    rig.reports.lock().unwrap().received.clear();
    rig.restart().await;
    until("the repeated report", || !rig.reported("generation").is_empty()).await;
    rig.wait_for(unreported, 0).await;
    let reported = rig.reported("generation");
    assert!(reported.len() == 1 && reported.iter().all(|report| report.contains(&kept.key)), "{reported:?}");
    assert_eq!(rig.count("SELECT count(*) FROM svc.dumps").await, 2);
}
