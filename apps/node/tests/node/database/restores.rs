//! Tenant code that runs in a restore, and the size of the new database.

use protocol::{DatabaseOperationKind, OperationPhase, OperationReport};

use super::kit::{Kit, eventually, number};

const SLEEPING: &str = "SELECT count(*) FROM pg_stat_activity WHERE usename ~ '^load_' AND wait_event = 'PgSleep'";
const PREPARED: &str = "SELECT count(*) FROM pg_database WHERE datname ~ '^new_'";
const LOGINS: &str = "SELECT count(*) FROM pg_roles WHERE rolname ~ '^load_' AND rolcanlogin";

/// Returns the SQL of an attack. During a restore, a check on the first table sets the password of the login and
/// commits it. A check on the second table then waits.
fn attack(load: &str, owner: &str) -> String {
    format!(
        "CREATE TABLE a_log (outcome text);
         CREATE FUNCTION public.attack(value text) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN
             IF session_user <> '{load}' THEN RETURN true; END IF;
             IF value = 'sleep' THEN PERFORM pg_sleep(6); RETURN true; END IF;
             SET ROLE NONE;
             LOOP
                 -- The node changes the same role.
                 BEGIN
                     ALTER ROLE {load} PASSWORD 'mine';
                     EXIT;
                 EXCEPTION WHEN internal_error THEN
                     PERFORM pg_stat_clear_snapshot();
                 END;
             END LOOP;
             SET ROLE {owner};
             INSERT INTO public.a_log VALUES ('done');
             RETURN true;
         END $f$;
         CREATE TABLE b_password (value text CHECK (public.attack(value)));
         CREATE TABLE c_sleep (value text CHECK (public.attack(value)));
         INSERT INTO b_password VALUES ('password');
         INSERT INTO c_sleep VALUES ('sleep')"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn code_in_a_restore_opens_no_way_to_the_databases() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let owner = kit.name("prj_a");
    let load = owner.replace("db_", "load_");
    let session = kit.session("prj_a").await;
    session.batch_execute(&attack(&load, &owner)).await.unwrap();
    session.batch_execute("GRANT CREATE ON SCHEMA public TO PUBLIC; COMMENT ON SCHEMA public IS 'mine'").await.unwrap();
    session.batch_execute(&format!("GRANT ALL ON SCHEMA public TO {owner}")).await.unwrap();
    let schema = kit.dump("prj_a", &["--schema-only"]);
    let generation = kit.generation("prj_a").await;
    let admin = kit.superuser("svc_node").await;
    for aborts in [true, false] {
        eventually("the end of earlier databases", async || number(&admin, PREPARED).await == 0).await;
        kit.begin("prj_a", DatabaseOperationKind::RestoreGeneration, Some(generation.clone()));
        kit.operate_until("prj_a", OperationPhase::Draining).await;
        kit.advance("prj_a");
        eventually("the code", async || number(&admin, SLEEPING).await == 1).await;
        let foreign = format!("{PREPARED} AND datdba = '{owner}'::regrole");
        assert_eq!((number(&admin, PREPARED).await, number(&admin, &foreign).await), (1, 0));
        let prepared = admin.query_one("SELECT datname::text FROM pg_database WHERE datname ~ '^new_'", &[]).await;
        let prepared: String = prepared.unwrap().get(0);
        for database in [&prepared, &owner, "postgres"] {
            assert!(kit.log_in(&load, "mine", database).await.is_err(), "{database}");
        }
        if aborts {
            kit.change("prj_a", |desired| desired.operation = None);
            kit.applied("prj_a").await;
            eventually("the end of the new database", async || number(&admin, PREPARED).await == 0).await;
        } else {
            kit.operate_until("prj_a", OperationPhase::Reactivating).await;
            kit.advance("prj_a");
            kit.applied("prj_a").await;
        }
        eventually("the end of the login", async || number(&admin, LOGINS).await == 0).await;
    }
    // The attack took place, and the schema is the same.
    let session = kit.session("prj_a").await;
    assert_eq!(number(&session, "SELECT count(*) FROM a_log WHERE outcome = 'done'").await, 1);
    assert_eq!(kit.dump("prj_a", &["--schema-only"]), schema);
    let owner_of =
        format!("SELECT count(*) FROM pg_database WHERE datname = '{owner}' AND datdba = '{owner}'::regrole");
    assert_eq!(number(&admin, &owner_of).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_that_grows_too_large_fails() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let fill = "CREATE TABLE t AS SELECT repeat(md5(i::text), 8) AS text FROM generate_series(1, 60000) i";
    let session = kit.session("prj_a").await;
    session.batch_execute(fill).await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.session("prj_a").await.batch_execute("TRUNCATE t; INSERT INTO t VALUES ('kept')").await.unwrap();
    kit.change("prj_a", |desired| desired.size_bytes = 5 << 20);
    let id = kit.begin("prj_a", DatabaseOperationKind::RestoreGeneration, Some(generation.clone()));
    kit.operate_until("prj_a", OperationPhase::Draining).await;
    kit.advance("prj_a");
    let report =
        kit.reported("prj_a", "the failure", |report| matches!(report.operation, Some(OperationReport::Failed(_))));
    let Some(OperationReport::Failed(failed)) = report.await.operation else { unreachable!("checked") };
    assert_eq!(failed.id, id);
    assert_eq!(failed.error, "the restored database is larger than 20 MiB, which the plan does not permit");
    let admin = kit.superuser("svc_node").await;
    eventually("the end of the new database", async || number(&admin, PREPARED).await == 0).await;
    // The content is the previous one. With a larger plan, the restore succeeds.
    kit.change("prj_a", |desired| (desired.operation, desired.size_bytes) = (None, 1 << 30));
    kit.applied("prj_a").await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT count(*) FROM t").await, 1);
    kit.restore("prj_a", &generation).await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT count(*) FROM t").await, 60_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_as_large_as_the_database_is_restored_after_a_lower_limit() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let fill = "CREATE TABLE t AS SELECT repeat(md5(i::text), 8) AS text FROM generate_series(1, 60000) i";
    kit.session("prj_a").await.batch_execute(fill).await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.session("prj_a").await.batch_execute("INSERT INTO t VALUES ('later')").await.unwrap();
    // The database is larger than four times this limit.
    kit.change("prj_a", |desired| desired.size_bytes = 4 << 20);
    let report = kit.applied("prj_a").await;
    assert!(report.read_only && report.size_bytes > 16 << 20, "{report:?}");
    kit.restore("prj_a", &generation).await;
    let session = kit.session("prj_a").await;
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, 60_000);
}
