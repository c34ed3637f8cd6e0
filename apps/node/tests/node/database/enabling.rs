//! Creation of databases.

use serde_json::json;
use tokio_postgres::error::SqlState;

use super::kit::{Kit, PASSWORD, eventually, number};
use crate::control_plane::ControlPlane;
use crate::running::{Dir, RunningNode, until};

#[tokio::test(flavor = "multi_thread")]
async fn enabled_database_admits_its_login_as_the_owner() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let session = kit.session("prj_a").await;
    let row = session.query_one("SELECT session_user::text, current_user::text", &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), (kit.app("prj_a"), kit.name("prj_a")));
    // The node recognizes errors by their English messages. The setting of the cluster is another one.
    let language = session.query_one("SELECT current_setting('lc_messages')", &[]).await.unwrap();
    assert_eq!(language.get::<_, String>(0), "C");
    let logins = "SELECT count(*) FROM pg_roles
        WHERE rolname ~ '^(app|node|dump|auth)_' AND 'lc_messages=C' = ANY (rolconfig)";
    assert_eq!(number(&kit.superuser("svc_node").await, logins).await, 4);
    session.batch_execute("CREATE TABLE notes (id serial PRIMARY KEY, text text); SELECT lo_create(0)").await.unwrap();
    let owner =
        session.query_one("SELECT tableowner::text FROM pg_tables WHERE tablename = 'notes'", &[]).await.unwrap();
    assert_eq!(owner.get::<_, String>(0), kit.name("prj_a"));
    // The restrictions of the template are not a part of a dump.
    let dump = kit.dump("prj_a", &["--schema-only"]);
    assert!(dump.contains("CREATE TABLE public.notes") && !dump.contains("pg_catalog.pg_stat"), "{dump}");
    let address = kit.postgres.address();
    let (host, port) = address.split_once(':').unwrap();
    let announced = json!({ "database": {
        "host": host, "port": port.parse::<u16>().unwrap(), "sslmode": "disable", "backupIntervalSeconds": 86400,
    } });
    until("the announcement", || kit.core.announced().as_ref() == Some(&announced)).await;
    // A second node without the saved state finds everything in its desired state.
    let before = number(&kit.superuser("svc_node").await, "SELECT sum(oid::bigint) FROM pg_database").await;
    kit.restart_node();
    kit.change("prj_a", |_| ());
    kit.applied("prj_a").await;
    assert_eq!(number(&kit.superuser("svc_node").await, "SELECT sum(oid::bigint) FROM pg_database").await, before);
    session.batch_execute("INSERT INTO notes (text) VALUES ('still open')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_database_refuses_logins_until_its_privileges_are_set() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let admin = kit.superuser("svc_node").await;
    // The node fails after it has created the database, and before it sets the privileges.
    let fail = "ALTER TABLE svc.databases ADD CONSTRAINT fails CHECK (max_login_bytes IS NULL) NOT VALID";
    admin.batch_execute(&format!("CREATE ROLE monitor LOGIN PASSWORD '{PASSWORD}'; {fail}")).await.unwrap();
    kit.request("prj_b");
    let database = kit.name("prj_b");
    let exists = format!("SELECT count(*) FROM pg_database WHERE datname = '{database}'");
    eventually("the database", async || number(&admin, &exists).await == 1).await;
    let error = kit.log_in("monitor", PASSWORD, &database).await.unwrap_err();
    // PUBLIC still has the privilege.
    assert_eq!(error.code(), Some(&SqlState::TOO_MANY_CONNECTIONS), "{error:?}");
    admin.batch_execute("ALTER TABLE svc.databases DROP CONSTRAINT fails").await.unwrap();
    kit.applied("prj_b").await;
    let error = kit.log_in("monitor", PASSWORD, &database).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn encoding_and_locale_do_not_depend_on_the_server() {
    const READ: &str = "SELECT pg_encoding_to_char(encoding)::text, datcollate::text, datctype::text FROM pg_database
        WHERE datname = current_database()";
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let admin = kit.superuser("postgres").await;
    admin
        .batch_execute(
            "UPDATE pg_database SET encoding = pg_char_to_encoding('SQL_ASCII'), datcollate = 'C', datctype = 'C'
            WHERE datname = 'template0'",
        )
        .await
        .unwrap();
    // The node creates it again.
    admin.batch_execute("DROP DATABASE svc_template").await.unwrap();
    kit.enable("prj_b").await;
    let row = kit.session("prj_b").await.query_one(READ, &[]).await.unwrap();
    let names: [String; 3] = [0_usize, 1, 2].map(|column| row.get(column));
    assert_eq!(names, ["UTF8", "C", "C.UTF-8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_postgres_announces_none() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let running = RunningNode::start(&core, &dir).await;
    until("the announcement", || core.announced() == Some(json!({ "database": null }))).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_are_created_when_postgres_starts_late_and_after_crashes() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.node.kill();
    kit.postgres.kill();
    kit.restart_node_after_kill();
    for number in 0..60 {
        kit.request(&format!("prj_{number}"));
    }
    eventually("a failed attempt", async || kit.node.log().contains("failed to")).await;
    kit.postgres.restart();
    // Postgres and the node crash while the databases are created.
    eventually("some databases", async || kit.report("prj_0").is_some()).await;
    kit.postgres.kill();
    kit.postgres.restart();
    kit.restart_node();
    for number in 0..60 {
        kit.applied(&format!("prj_{number}")).await;
    }
    for project in ["prj_0", "prj_31", "prj_59"] {
        kit.session(project).await.batch_execute("CREATE TABLE t ()").await.unwrap();
    }
    let admin = kit.superuser("svc_node").await;
    assert_eq!(number(&admin, "SELECT count(*) FROM pg_database WHERE datname ~ '^db_'").await, 60);
    assert_eq!(number(&admin, "SELECT count(*) FROM pg_roles WHERE rolname ~ '^(db|app|node|dump)_'").await, 240);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_contains_no_password_and_no_verifier() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.node.kill();
    kit.start_node("trace");
    kit.enable("prj_a").await;
    kit.add_token("prj_a", None);
    kit.applied("prj_a").await;
    kit.generation("prj_a").await;
    let log = kit.node.log();
    let url = kit.postgres.url();
    let password = url.split([':', '@']).nth(2).unwrap().replace("%20", " ");
    assert!(log.contains("created an empty database") && log.contains("stored a dump of a database"));
    for secret in ["SCRAM-SHA-256$", &password, "PGPASSWORD"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret}: {line:?}");
    }
}
