//! A node that is killed during a dump or a restore.

use std::fs;
use std::path::PathBuf;

use protocol::{DatabaseOperationKind, OperationPhase};
use tokio_postgres::Client;

use crate::database::kit::{Kit, eventually, number};

/// Selects the number of sessions of `pg_dump` and `pg_restore` that transfer data.
const COPIES: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'svc-node' AND query LIKE 'COPY %'";

/// Returns the files in the store, including unfinished ones.
fn files(kit: &Kit, project: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(kit.dir.path().join("backups").join(project)) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Kills the node, and waits until its programs have ended. Nothing else closes their sessions.
async fn kill(kit: &mut Kit, superuser: &Client) {
    assert!(number(superuser, COPIES).await > 0);
    kit.node.kill();
    eventually("the end of the programs", async || number(superuser, COPIES).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_leaves_one_generation_and_a_complete_database() {
    let Some(mut kit) = Kit::start().await else { return };
    let project = "prj_01jd0000000000000000000000";
    kit.enable(project).await;
    let session = kit.session(project).await;
    let fill = "CREATE TABLE t AS SELECT i, sha512(i::text::bytea) AS x FROM generate_series(1, 500000) AS i";
    session.batch_execute(fill).await.unwrap();
    // The large object belongs to the login, not to the owner of the database.
    session.batch_execute("SET ROLE NONE; SELECT lo_create(1)").await.unwrap();
    let generation = kit.generation(project).await;
    assert_eq!(files(&kit, project).len(), 1);
    // This dump does not contain the large object, which the owner cannot read.
    let before = kit.dump(project, &["-B"]);
    let superuser = kit.superuser("postgres").await;

    kit.begin(project, DatabaseOperationKind::RestoreGeneration, Some(generation));
    kit.operate_until(project, OperationPhase::Draining).await;
    kit.advance(project);
    // Before a restore, the node dumps the database as a generation. It is killed after it has written a part of this
    // dump.
    eventually("a part of the dump", async || files(&kit, project).len() == 2).await;
    kill(&mut kit, &superuser).await;
    let own = kit.superuser("svc_node").await;
    assert_eq!(number(&own, "SELECT count(*) FROM svc.dumps WHERE NOT stored").await, 1);
    kit.restart_node();
    // The node is killed in the restore into the new database, twice.
    let restores = format!("{COPIES} AND datname LIKE 'new_%'");
    for _ in 0..2 {
        eventually("the restore", async || number(&superuser, &restores).await > 0).await;
        kill(&mut kit, &superuser).await;
        kit.restart_node();
    }
    kit.operate_until(project, OperationPhase::Reactivating).await;
    kit.advance(project);
    kit.applied(project).await;

    assert_eq!(kit.dump(project, &["-B"]), before);
    let session = kit.session(project).await;
    assert_eq!(number(&session, "SELECT count(*) FROM pg_largeobject_metadata").await, 1);
    assert_eq!(kit.generations(project, "pre_restore").len(), 2);
    eventually("the deletion of the interrupted dump", async || files(&kit, project).len() == 2).await;
    assert_eq!(number(&own, "SELECT count(*) FROM svc.dumps WHERE stored").await, 2);
    let unreported = "SELECT count(*) FROM svc.dumps WHERE NOT reported";
    eventually("the acceptance of the reports", async || number(&own, unreported).await == 0).await;
    assert_eq!(fs::read_dir(kit.dir.path().join("restores")).map_or(0, Iterator::count), 0);
}
