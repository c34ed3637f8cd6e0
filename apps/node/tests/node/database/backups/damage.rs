//! Stored objects that are missing or corrupt.

use std::fs;
use std::time::Duration;

use protocol::{DatabaseReport, GenerationRef};

use super::Rig;
use super::rig::NEVER;
use crate::running::until;
use crate::storage::store::{Kind, TestStore};

#[tokio::test(flavor = "multi_thread")]
async fn damaged_generation_is_refused_before_the_first_statement() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let source = rig.create("prj_1").await;
    source.session.batch_execute("CREATE TABLE t AS SELECT generate_series(1, 10000) AS i").await.unwrap();
    let sealed = rig.seal(&source, "opn_1").await;
    let file = rig.store_file(&sealed.key);
    let good = fs::read(&file).unwrap();
    let generation = GenerationRef { key: sealed.key, size_bytes: sealed.size_bytes, sha256: sealed.sha256 };
    rig.create_empty(&source, "new_1").await;
    let empty = rig.sql("new_1");

    let mut flipped = good.clone();
    flipped[good.len() - 1] ^= 1;
    let longer = [good.as_slice(), b"x"].concat();
    for content in [&flipped, &longer, &good[..good.len() - 1], &[][..]] {
        fs::write(&file, content).unwrap();
        let error = rig.restore(&source, &generation, "new_1").await.unwrap_err();
        assert!(error.is_permanent() && error.to_string().ends_with("is corrupt"), "{error}");
        assert_eq!(rig.sql("new_1"), empty);
    }
    fs::remove_file(&file).unwrap();
    let error = rig.restore(&source, &generation, "new_1").await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("is missing"), "{error}");
    assert_eq!(rig.sql("new_1"), empty);

    // This archive has the right digest but cannot be restored.
    fs::write(&file, b"PGDMP").unwrap();
    let sha256 = crate::control_plane::sha256(b"PGDMP");
    let wrong = GenerationRef { key: generation.key.clone(), size_bytes: 5, sha256 };
    let error = rig.restore(&source, &wrong, "new_1").await.unwrap_err();
    assert!(error.is_permanent(), "{error}");

    fs::write(&file, &good).unwrap();
    rig.restore(&source, &generation, "new_1").await.unwrap();
    assert_ne!(rig.sql("new_1"), empty);
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_find_damaged_generations_and_the_next_backup_is_not_skipped() {
    let Some(mut rig) = Rig::start(TestStore::start(Kind::Folder).await, Duration::from_secs(2)).await else { return };
    let source = rig.create("prj_1").await;
    rig.registry.set(source.entry.clone());
    let sealed = rig.seal(&source, "opn_1").await;
    rig.restart().await;
    let good = "SELECT count(*) FROM svc.dumps WHERE stored AND NOT damaged AND kind = 'scheduled'";
    rig.wait_for(good, 1).await;
    let checked = "SELECT count(*) FROM svc.dumps WHERE checked_at > now() - interval '1 hour'";
    rig.admin.execute("UPDATE svc.dumps SET checked_at = now() - interval '1 year'", &[]).await.unwrap();
    rig.wait_for(checked, 2).await;
    assert_eq!(rig.count("SELECT count(*) FROM svc.dumps WHERE damaged").await, 0);

    // Both generations are damaged: one is corrupt, and one is missing.
    let key: String =
        rig.admin.query_one("SELECT key FROM svc.dumps WHERE kind = 'scheduled'", &[]).await.unwrap().get(0);
    let mut content = fs::read(rig.store_file(&key)).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(rig.store_file(&key), content).unwrap();
    fs::remove_file(rig.store_file(&sealed.key)).unwrap();
    rig.admin.execute("UPDATE svc.dumps SET checked_at = now() - interval '1 year'", &[]).await.unwrap();
    rig.wait_for("SELECT count(*) FROM svc.dumps WHERE damaged", 2).await;
    rig.wait_for(good, 1).await;
    let errors = || {
        let reports = rig.reports.lock().unwrap();
        let reports = reports.received.iter().filter(|report| report.kind == "database");
        let errors =
            reports.map(|it| serde_json::from_value::<DatabaseReport>(it.report.clone()).unwrap().backup_error);
        errors.collect::<Vec<_>>()
    };
    let is_damage =
        |error: &String| error.starts_with("the object prj_1/") && error.contains(". This backup is lost. ");
    until("the error", || errors().iter().flatten().any(is_damage)).await;
    until("the success after the error", || errors().last() == Some(&None)).await;
}
