//! Deletion of databases and of projects.

use std::fs;

use protocol::{DatabaseOperationKind, OperationPhase};
use serde_json::json;

use super::kit::{Kit, PASSWORD, eventually, number, tombstones};

const ROLES: &str = "SELECT count(*) FROM pg_roles WHERE rolname ~ '^(app|node|dump|tok)_'";

#[tokio::test(flavor = "multi_thread")]
async fn deleted_database_leaves_a_generation_and_a_tombstone() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.add_token("prj_a", None);
    kit.applied("prj_a").await;
    let session = kit.session("prj_a").await;
    session.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    let (app, database, id) = (kit.app("prj_a"), kit.name("prj_a"), kit.desired("prj_a").id.clone());
    kit.begin("prj_a", DatabaseOperationKind::Delete, None);
    kit.operate_until("prj_a", OperationPhase::Sealing).await;
    eventually("the generation", async || kit.generations("prj_a", "final").len() == 1).await;
    kit.advance("prj_a");
    kit.operate_until("prj_a", OperationPhase::Committing).await;
    assert!(session.batch_execute("SELECT").await.is_err());
    assert!(kit.log_in(&app, PASSWORD, &database).await.is_err());
    let admin = kit.superuser("svc_node").await;
    eventually("the end of the roles", async || number(&admin, ROLES).await == 0).await;
    assert_eq!(tombstones(&admin).await.len(), 1);
    // A restart repeats the report.
    kit.restart_node();
    let reports = kit.core.reports_of("prj_a", "database").len();
    eventually("another report", async || kit.core.reports_of("prj_a", "database").len() > reports).await;
    let operation = kit.desired("prj_a").operation.clone().unwrap();
    kit.completed("prj_a", &operation).await;
    kit.withdraw("prj_a");
    // A later database of the project is empty, and can be restored from the final generation.
    kit.enable("prj_a").await;
    assert_ne!(kit.desired("prj_a").id, id);
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(number(&kit.session("prj_a").await, tables).await, 0);
    let generation = kit.generations("prj_a", "final").pop().unwrap();
    kit.restore("prj_a", &generation).await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
    // The owner's role is dropped with the last tombstone.
    admin.batch_execute("UPDATE svc.tombstones SET drop_at = now()").await.unwrap();
    kit.restart_node();
    let owner = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{database}'");
    eventually("the end of the owner", async || number(&admin, &owner).await == 0).await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_full_state_removes_a_database() {
    let Some(mut kit) = Kit::start().await else { return };
    for project in ["prj_a", "prj_b", "prj_c"] {
        kit.enable(project).await;
        kit.session(project).await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    }
    let session = kit.session("prj_a").await;
    kit.withdraw("prj_a");
    // The logins end immediately.
    eventually("the end of the session", async || session.batch_execute("SELECT").await.is_err()).await;
    let (app, database) = (kit.app("prj_a"), kit.name("prj_a"));
    assert!(kit.log_in(&app, PASSWORD, &database).await.is_err());
    let admin = kit.superuser("svc_node").await;
    assert_eq!(tombstones(&admin).await.len(), 0);
    // If a part cannot be read, its database is kept, even after a restart.
    kit.core.make_unavailable("prj_b", "database");
    kit.restart_node();
    eventually("the tombstone", async || tombstones(&admin).await.len() == 1).await;
    eventually("the generation", async || kit.generations("prj_a", "final").len() == 1).await;
    for project in ["prj_b", "prj_c"] {
        assert_eq!(number(&kit.session(project).await, "SELECT n FROM t").await, 42);
    }
    let others = format!("{ROLES} AND rolname !~ '{}'", kit.name("prj_a").replace("db_", "_"));
    eventually("the end of the roles", async || number(&admin, ROLES).await == number(&admin, &others).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_was_replaced_while_the_node_was_offline_is_removed() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    kit.node.kill();
    kit.withdraw("prj_a");
    kit.request("prj_a");
    kit.restart_node_after_kill();
    kit.applied("prj_a").await;
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(number(&kit.session("prj_a").await, tables).await, 0);
    eventually("the generation", async || kit.generations("prj_a", "final").len() == 1).await;
    let admin = kit.superuser("svc_node").await;
    eventually("the tombstone", async || tombstones(&admin).await.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unlisted_database_is_closed_at_once_and_removed_after_a_day() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let (app, database) = (kit.app("prj_a"), kit.name("prj_a"));
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    kit.node.kill();
    kit.withdraw("prj_a");
    kit.restart_node_after_kill();
    eventually("the refusal", async || kit.log_in(&app, PASSWORD, &database).await.is_err()).await;
    let admin = kit.superuser("svc_node").await;
    let unlisted = "SELECT count(*) FROM svc.databases WHERE unlisted_since IS NOT NULL AND removal IS NULL";
    eventually("the record", async || number(&admin, unlisted).await == 1).await;
    // The part is listed again.
    kit.change("prj_a", |_| ());
    kit.applied("prj_a").await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
    eventually("the end of the record", async || number(&admin, unlisted).await == 0).await;
    kit.node.kill();
    kit.withdraw("prj_a");
    let past = "UPDATE svc.databases SET unlisted_since = now() - interval '25 hours'";
    admin.batch_execute(past).await.unwrap();
    kit.restart_node_after_kill();
    eventually("the tombstone", async || tombstones(&admin).await.len() == 1).await;
    // Another node may have written the database, so the final generation is not reported. Later ones are.
    let sealed = "SELECT count(*) FROM svc.dumps WHERE kind = 'final' AND stored";
    assert_eq!(number(&admin, sealed).await, 1);
    kit.restart_node();
    kit.enable("prj_b").await;
    kit.generation("prj_b").await;
    assert!(kit.generations("prj_a", "final").is_empty());
}

/// Tests a node that has no records of backups, because another node made them or its own Postgres was lost.
#[tokio::test(flavor = "multi_thread")]
async fn backups_of_purged_projects_are_deleted_without_records() {
    let interval = ("SVC_NODE_BACKUP_INTERVAL".to_owned(), "1s".to_owned());
    let Some(mut kit) = Kit::start_with(vec![interval]).await else { return };
    kit.enable("prj_a").await;
    kit.node.kill();
    let backups = kit.dir.path().join("backups");
    let names = ["20200101T000000Z-1.dump", "29990101T000000Z-2.dump", "29990101T000000Z-3.dump#1"];
    for project in ["prj_b", "prj_c", "prj_d"] {
        fs::create_dir(backups.join(project)).unwrap();
        for name in names {
            fs::write(backups.join(project).join(name), "x").unwrap();
        }
    }
    // The database of this project was deleted. The control plane can still list the backups of the other node.
    let record = "
        INSERT INTO svc.dumps (key, project, database, kind, epoch, created_at, stored, size_bytes, sha256, days)
        VALUES ('prj_b/29990101T000000Z-2.dump', 'prj_b', 'dbs_b', 'export', 1, now(), true, 1, '', 7)";
    kit.superuser("svc_node").await.batch_execute(record).await.unwrap();
    // This project was purged.
    kit.core.set_part("prj_c", "deletedBackups", json!({}));
    kit.restart_node_after_kill();
    eventually("the report", async || kit.core.last_report_of("prj_c", "deletedBackups") == Some(json!({}))).await;
    let exist = |project: &str| names.map(|name| backups.join(project).join(name).exists());
    assert_eq!(["prj_b", "prj_c", "prj_d"].map(exist), [[true; 3], [false; 3], [true; 3]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tombstone_that_cannot_be_dropped_does_not_keep_later_ones() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.node.kill();
    let admin = kit.superuser("svc_node").await;
    for statement in [
        // Postgres refuses to drop a template.
        "CREATE DATABASE old_1 IS_TEMPLATE true",
        "CREATE DATABASE old_2",
        "INSERT INTO svc.tombstones (name, project, owner, drop_at)
         SELECT 'old_' || i, 'prj_a', 'db_a', now() - interval '1 day' / i FROM generate_series(1, 2) i",
    ] {
        admin.batch_execute(statement).await.unwrap();
    }
    let exists = "SELECT count(*) FROM pg_database JOIN svc.tombstones ON name = datname";
    kit.restart_node_after_kill();
    eventually("the end of a tombstone", async || number(&admin, exists).await == 1).await;
    assert!(kit.node.log().contains("failed to drop a tombstone"));
    kit.node.kill();
    admin.batch_execute("ALTER DATABASE old_1 IS_TEMPLATE false").await.unwrap();
    kit.restart_node_after_kill();
    eventually("the end of both tombstones", async || number(&admin, exists).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_database_becomes_a_tombstone_after_a_day_of_failed_backups() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let session = kit.session("prj_a").await;
    session.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    // The store cannot create the folder of the project's objects, because a file has its name.
    fs::write(kit.dir.path().join("backups/prj_a"), "").unwrap();
    kit.withdraw("prj_a");
    eventually("the end of the session", async || session.batch_execute("SELECT").await.is_err()).await;
    kit.restart_node();
    let failed = |kit: &Kit| kit.node.log().matches("the backup store failed").count();
    eventually("two failures", async || failed(&kit) > 1).await;
    let admin = kit.superuser("svc_node").await;
    kit.node.kill();
    assert_eq!(tombstones(&admin).await.len(), 0);
    let past = "UPDATE svc.databases SET removal_failed_at = removal_failed_at - interval '25 hours'
        WHERE removal IS NOT NULL AND removal_failed_at IS NOT NULL";
    assert_eq!(admin.execute(past, &[]).await.unwrap(), 1);
    kit.restart_node_after_kill();
    eventually("the tombstone", async || tombstones(&admin).await.len() == 1).await;
    // The node may have been down for the whole day, so its first failure does not count.
    eventually("two failures", async || failed(&kit) > 1).await;
    assert!(kit.generations("prj_a", "final").is_empty());
}
