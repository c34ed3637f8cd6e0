//! A major upgrade of the Postgres server with `pg_upgrade`.

use testkit::PrivatePostgres;
use tokio_postgres::error::SqlState;

use super::kit::{Kit, PASSWORD, number, tombstones};

/// Executes the commands of docs/operations.md, section "Databases of projects".
#[tokio::test(flavor = "multi_thread")]
async fn pg_upgrade_keeps_databases_and_tombstones() {
    const GUIDE: &str = include_str!("../../../../../docs/operations.md");
    let (_, steps) = GUIDE.split_once("**Upgrades.**").unwrap();
    let (steps, _) = steps.split_once("**A lost disk.**").unwrap();
    let commands: Vec<&str> = steps.split("```").skip(1).step_by(2).collect();
    let [drop_template, restrict] = commands[..] else { panic!("{commands:?}") };
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.restore("prj_a", &generation).await;
    kit.node.kill();
    execute(&kit.postgres, drop_template);
    kit.postgres.upgrade();
    execute(&kit.postgres, restrict);
    kit.restart_node_after_kill();
    // The new database is created from a new template.
    kit.enable("prj_b").await;
    kit.change("prj_a", |_| ());
    kit.applied("prj_a").await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
    for project in ["prj_a", "prj_b"] {
        kit.session(project).await.batch_execute("SELECT FROM pg_stat_activity").await.unwrap_err();
    }
    let (app, admin) = (kit.app("prj_a"), kit.superuser("svc_node").await);
    let tombstones = tombstones(&admin).await;
    let [tombstone] = &tombstones[..] else { panic!("{tombstones:?}") };
    assert!(kit.log_in(&app, PASSWORD, tombstone).await.is_err());
    let session = kit.superuser(tombstone).await;
    assert_eq!(number(&session, "SELECT n FROM t").await, 42);
    session.batch_execute(&format!("SET ROLE {app}")).await.unwrap();
    let error = session.batch_execute("SELECT FROM pg_stat_activity").await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{error:?}");
}

/// Executes the commands of a block of the guide in the root of the repository.
fn execute(postgres: &PrivatePostgres, block: &str) {
    let mut shell = postgres.shell(block.strip_prefix("sh\n").unwrap());
    let output = shell.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
