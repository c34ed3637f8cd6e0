//! Restores, aborts and failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use protocol::{DatabaseOperationKind, DatabaseReport, GenerationRef, OperationPhase, OperationReport};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::kit::{Kit, PASSWORD, eventually, number, tombstones};

const CONTENT: &str = "
    CREATE TABLE notes (id bigserial PRIMARY KEY, text text NOT NULL);
    CREATE SEQUENCE counter START 7; SELECT nextval('counter');
    CREATE VIEW shown AS SELECT text FROM notes;
    CREATE FUNCTION shout(text) RETURNS text LANGUAGE sql RETURN upper($1);
    REVOKE ALL ON FUNCTION shout FROM PUBLIC;
    GRANT SELECT ON notes TO PUBLIC;
    ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
    CREATE POLICY all_rows ON notes USING (true);
    COMMENT ON TABLE notes IS 'it''s \"quoted\"';
    CREATE SCHEMA \"other schema\";
    CREATE TYPE \"other schema\".mood AS ENUM ('sad', 'happy');
    SELECT lo_from_bytea(4711, 'large');
    INSERT INTO notes (text) SELECT 'note ' || i FROM generate_series(1, 1000) i";

#[tokio::test(flavor = "multi_thread")]
async fn restore_under_writers_is_exact() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let token = kit.add_token("prj_a", None);
    kit.applied("prj_a").await;
    let database = kit.name("prj_a");
    let session = kit.session("prj_a").await;
    session.batch_execute(CONTENT).await.unwrap();
    let own = format!(
        "ALTER DATABASE {database} SET search_path = public, \"other schema\"; COMMENT ON DATABASE {database} IS 'mine'"
    );
    session.batch_execute(&own).await.unwrap();
    let settings = format!(
        "SELECT setconfig::text || shobj_description(setdatabase, 'pg_database') FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase WHERE datname = '{database}'"
    );
    let roles = "SELECT string_agg(concat(rolname, rolconnlimit, rolconfig, rolcanlogin), ',' ORDER BY rolname) FROM pg_roles WHERE rolname ~ '^(db|app|node|dump|tok)_'";
    let privileges = format!(
        "SELECT string_agg(acl::text, ',' ORDER BY acl::text) FROM pg_database, unnest(datacl) acl WHERE datname = '{database}'"
    );
    let admin = kit.superuser("svc_node").await;
    let read = async |statement: &str| admin.query_one(statement, &[]).await.unwrap().get::<_, String>(0);
    let before = [read(&settings).await, read(roles).await, read(&privileges).await];
    let (schema, content) = (kit.dump("prj_a", &["--schema-only"]), kit.dump("prj_a", &[]));
    let generation = kit.generation("prj_a").await;

    // Ten writers log in again and again, through both logins.
    let (stop, committed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let mut writers = JoinSet::new();
    for number in 0..10 {
        let user = if number % 2 == 0 { kit.app("prj_a") } else { token.clone() };
        let mut config = tokio_postgres::Config::new();
        let address = kit.postgres.address();
        let (host, port) = address.split_once(':').unwrap();
        config.host(host).port(port.parse().unwrap()).user(user).password(PASSWORD).dbname(&database);
        let (stop, committed) = (Arc::clone(&stop), Arc::clone(&committed));
        writers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let Ok((client, connection)) = config.connect(tokio_postgres::NoTls).await else {
                    sleep(Duration::from_millis(5)).await;
                    continue;
                };
                tokio::spawn(async move { drop(connection.await) });
                while client.batch_execute("INSERT INTO notes (text) VALUES ('late')").await.is_ok() {
                    committed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    eventually("writes", async || committed.load(Ordering::Relaxed) > 50).await;
    let written = committed.load(Ordering::Relaxed);
    let id = kit.begin("prj_a", DatabaseOperationKind::RestoreGeneration, Some(generation.clone()));
    kit.operate_until("prj_a", OperationPhase::Draining).await;
    // Nothing is committed after the drain, so the sealed generation contains all writes.
    let late = "SELECT count(*) FROM notes WHERE text = 'late'";
    let drained = number(&kit.superuser(&database).await, late).await;
    assert!(drained >= committed.load(Ordering::Relaxed) && drained >= written);
    kit.advance("prj_a");
    kit.operate_until("prj_a", OperationPhase::Sealing).await;
    assert_eq!(number(&kit.superuser(&database).await, late).await, drained);
    kit.advance("prj_a");
    kit.operate_until("prj_a", OperationPhase::Committing).await;
    stop.store(true, Ordering::Relaxed);
    writers.join_all().await;
    kit.advance("prj_a");
    kit.operate_until("prj_a", OperationPhase::Reactivating).await;
    kit.advance("prj_a");
    kit.applied("prj_a").await;
    assert_eq!(kit.dump("prj_a", &["--schema-only"]), schema);
    assert_eq!(kit.dump("prj_a", &[]), content);
    assert_eq!([read(&settings).await, read(roles).await, read(&privileges).await], before);
    let reports = kit.core.reports_of("prj_a", "database");
    let reports = reports.iter().map(|report| &report["operation"]).filter(|operation| operation["id"] == id);
    let mut phases: Vec<_> = reports.filter_map(|operation| operation["completed"].as_str()).collect();
    phases.dedup();
    assert_eq!(phases, ["draining", "sealing", "committing", "reactivating"]);
    // The sealed generation has every write, and nothing else.
    eventually("the generation", async || kit.generations("prj_a", "pre_restore").len() > 1).await;
    let sealed = kit.generations("prj_a", "pre_restore");
    assert_eq!(sealed.len(), 2);
    kit.restore("prj_a", sealed.iter().find(|sealed| sealed.key != generation.key).unwrap()).await;
    let session = kit.session("prj_a").await;
    assert_eq!(number(&session, late).await, drained);
    // The replaced databases are tombstones, which refuse all logins.
    let tombstones = tombstones(&admin).await;
    assert_eq!(tombstones.len(), 2);
    for tombstone in tombstones {
        assert!(kit.log_in(&kit.app("prj_a"), PASSWORD, &tombstone).await.is_err());
    }
    // The retention of the tombstones ends.
    admin.batch_execute("UPDATE svc.tombstones SET drop_at = now()").await.unwrap();
    kit.restart_node();
    eventually("the end of the tombstones", async || {
        number(&admin, "SELECT count(*) FROM pg_database WHERE datname ~ '^old_'").await == 0
    })
    .await;
    assert_eq!(number(&session, late).await, drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_and_failed_operations_change_nothing() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 1 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.session("prj_a").await.batch_execute("UPDATE t SET n = 2").await.unwrap();
    let dump = kit.dump("prj_a", &[]);
    for kind in [DatabaseOperationKind::RestoreGeneration, DatabaseOperationKind::Delete] {
        for last in [None, Some(OperationPhase::Draining), Some(OperationPhase::Sealing)] {
            let restores = kind == DatabaseOperationKind::RestoreGeneration;
            kit.begin("prj_a", kind, restores.then(|| generation.clone()));
            if let Some(last) = last {
                kit.operate_until("prj_a", last).await;
            }
            kit.change("prj_a", |desired| desired.operation = None);
            kit.applied("prj_a").await;
            assert_eq!(kit.dump("prj_a", &[]), dump, "{kind:?} {last:?}");
        }
    }
    let prepared = "SELECT count(*) FROM pg_database WHERE datname ~ '^new_'";
    // An abort does not wait until the database is created. The sweep drops the database.
    let admin = kit.superuser("svc_node").await;
    eventually("the end of the new databases", async || number(&admin, prepared).await == 0).await;
    // The operation ends if its object is missing or corrupt.
    let object = kit.dir.path().join("backups").join(&generation.key);
    let archive = std::fs::read(&object).unwrap();
    std::fs::write(&object, [&archive[..archive.len() / 2], b"damage"].concat()).unwrap();
    let missing = GenerationRef { key: "prj_a/missing.dump".to_owned(), ..generation.clone() };
    for generation in [missing, generation] {
        let id = kit.begin("prj_a", DatabaseOperationKind::RestoreGeneration, Some(generation));
        kit.operate_until("prj_a", OperationPhase::Draining).await;
        kit.advance("prj_a");
        let has_failed = |report: &protocol::DatabaseReport| matches!(&report.operation, Some(OperationReport::Failed(failed)) if failed.id == id && !failed.error.is_empty());
        kit.reported("prj_a", "the failure", has_failed).await;
        kit.change("prj_a", |desired| desired.operation = None);
        kit.applied("prj_a").await;
        assert_eq!(kit.dump("prj_a", &[]), dump);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn abort_while_the_new_database_is_created_leaves_no_database() {
    const BLOCKED: &str = "
        SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%UPDATE svc.databases%'";
    const LEFT: &str = "
        SELECT (SELECT count(*) FROM pg_database WHERE datname ~ '^new_')
            + (SELECT count(*) FROM svc.databases WHERE prepared_operation IS NOT NULL)";
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let (admin, observer) = (kit.superuser("svc_node").await, kit.superuser("svc_node").await);
    let missing = GenerationRef { key: "prj_a/missing.dump".to_owned(), size_bytes: 1, sha256: "0".repeat(64) };
    kit.begin("prj_a", DatabaseOperationKind::RestoreGeneration, Some(missing));
    kit.operate_until("prj_a", OperationPhase::Draining).await;
    admin.batch_execute("BEGIN; SELECT FROM svc.databases FOR NO KEY UPDATE").await.unwrap();
    kit.advance("prj_a");
    // The step waits before it records the new database.
    eventually("the step", async || number(&observer, BLOCKED).await == 1).await;
    // The reconciliation reads the row, waits after the step to record the new limit, and then stops the step.
    kit.change("prj_a", |desired| (desired.operation, desired.size_bytes) = (None, 2 << 30));
    eventually("the reconciliation", async || number(&observer, BLOCKED).await == 2).await;
    admin.batch_execute("COMMIT").await.unwrap();
    kit.applied("prj_a").await;
    eventually("the end of the new database", async || number(&observer, LEFT).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_that_cannot_be_completed_is_reported_until_the_operator_ends_it() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.session("prj_a").await.batch_execute("UPDATE t SET n = 43").await.unwrap();
    kit.begin("prj_a", DatabaseOperationKind::RestoreGeneration, Some(generation.clone()));
    kit.operate_until("prj_a", OperationPhase::Sealing).await;
    let admin = kit.superuser("postgres").await;
    let databases = "SELECT datname::text FROM pg_database WHERE datname ~ '^(db|new)_'";
    let databases = async || admin.query(databases, &[]).await.unwrap();
    // The sweep drops the new database of the aborted restore that made the generation.
    eventually("the sweep", async || databases().await.len() == 2).await;
    kit.node.kill();
    // The present database and the prepared one are lost, and so is the object.
    for row in databases().await {
        admin.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", row.get::<_, String>(0))).await.unwrap();
    }
    std::fs::remove_file(kit.dir.path().join("backups").join(&generation.key)).unwrap();
    kit.advance("prj_a");
    kit.restart_node_after_kill();
    let expected = format!(
        "the restore cannot be completed: the object {} is missing in the backup store. The database stays offline \
         until the operator ends the restore",
        generation.key
    );
    let is_reported = |report: &DatabaseReport| report.backup_error.as_ref() == Some(&expected) && !report.ready;
    kit.reported("prj_a", "the failure", is_reported).await;
    eventually("the generation", async || kit.generations("prj_a", "pre_restore").len() == 2).await;
    let sealed = kit.generations("prj_a", "pre_restore").pop();
    kit.change("prj_a", |desired| (desired.operation, desired.source) = (None, sealed));
    kit.applied("prj_a").await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 43);
    kit.reported("prj_a", "the end of the error", |report| report.backup_error.is_none()).await;
}
