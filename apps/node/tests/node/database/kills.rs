//! Crashes of the node and of Postgres between the steps of operations.

use protocol::{DatabaseOperationKind, GenerationReport, OperationPhase, OperationReport};

use super::kit::{Kit, eventually, number};

/// The log lines at which a restore is interrupted, with the number of the occurrence since the start of the restore.
const RESTORE: [(&str, usize); 11] = [
    ("executing a phase", 1),
    ("completed a phase", 1),
    ("executing a phase", 2),
    ("stored a dump of a database", 1),
    ("restoring a generation into a new database", 1),
    ("the new database is complete", 1),
    ("completed a phase", 2),
    ("executing a phase", 3),
    ("replaced the database", 1),
    ("completed a phase", 3),
    ("completed a phase", 4),
];

const DELETE: [(&str, usize); 5] = [
    ("executing a phase", 1),
    ("stored a dump of a database", 1),
    ("executing a phase", 3),
    ("removed a database", 1),
    ("completed a phase", 3),
];

/// Selects a number that depends on how many databases and roles the node has created. It is the same before and after
/// an operation that leaves nothing behind.
const OBJECTS: &str = "
    SELECT (SELECT count(*) FROM pg_database WHERE datname ~ '^(db|new)_') * 100
        + (SELECT count(*) FROM pg_roles WHERE rolname ~ '^(db|app|node|dump|tok)_')";

#[tokio::test(flavor = "multi_thread")]
async fn restore_is_completed_after_a_kill_at_every_step() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 0 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.revives_node = true;
    let steps = RESTORE.map(|step| (step, false)).into_iter();
    // In additional rounds, kill Postgres instead of the node at some of these lines.
    let steps = steps.chain([1, 3, 4, 5, 8].map(|at| (RESTORE[at], true)));
    for (round, ((text, count), kills_postgres)) in (1..).zip(steps) {
        kit.session("prj_a").await.batch_execute(&format!("UPDATE t SET n = {round}")).await.unwrap();
        let (before, starts) = (kit.generations("prj_a", "pre_restore").len(), kit.starts);
        if kills_postgres {
            kit.postgres_trap = Some((text, kit.node.log().matches(text).count() + count));
        } else {
            kit.node.kill_at(text, count);
        }
        kit.restore("prj_a", &generation).await;
        let step = format!("{text} {count} {kills_postgres}");
        assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 0, "{step}");
        // There is one new generation, and it contains the last write.
        eventually("the generation", async || kit.generations("prj_a", "pre_restore").len() > before).await;
        let sealed = kit.generations("prj_a", "pre_restore");
        assert_eq!(sealed.len(), before + 1, "{step}");
        let admin = kit.superuser("svc_node").await;
        eventually("the end of other objects", async || number(&admin, OBJECTS).await == 104).await;
        eventually("the kill", async || {
            kit.spring_traps();
            if kills_postgres { kit.postgres_trap.is_none() } else { kit.starts > starts }
        })
        .await;
        if round == 1 {
            kit.restore("prj_a", sealed.last().unwrap()).await;
            assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, round);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_is_completed_after_a_kill_at_every_step() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.revives_node = true;
    for (count_before, (text, count)) in DELETE.into_iter().enumerate() {
        kit.enable("prj_a").await;
        kit.session("prj_a").await.batch_execute("CREATE TABLE t ()").await.unwrap();
        kit.node.kill_at(text, count);
        kit.begin("prj_a", DatabaseOperationKind::Delete, None);
        kit.operate_until("prj_a", OperationPhase::Committing).await;
        eventually("the generation", async || kit.generations("prj_a", "final").len() > count_before).await;
        assert_eq!(kit.generations("prj_a", "final").len(), count_before + 1, "{text} {count}");
        let admin = kit.superuser("svc_node").await;
        assert_eq!(
            number(&admin, "SELECT count(*) FROM svc.tombstones WHERE drop_at > now()").await,
            i64::try_from(count_before).unwrap().min(1) + 1
        );
        assert_eq!(number(&admin, "SELECT count(*) FROM pg_database WHERE datname ~ '^(db|new)_'").await, 0);
        kit.withdraw("prj_a");
    }
}

/// Repeats the phase `sealing`, as a control plane does that was restored from a backup. Returns the generation that the
/// node reports.
async fn seal_again(kit: &mut Kit) -> Option<GenerationReport> {
    kit.change("prj_a", |desired| desired.operation.as_mut().unwrap().phase = OperationPhase::Sealing);
    kit.operate_until("prj_a", OperationPhase::Sealing).await;
    let Some(OperationReport::Completed(done)) = kit.report("prj_a").unwrap().operation else {
        unreachable!("completed")
    };
    done.generation
}

#[tokio::test(flavor = "multi_thread")]
async fn sealing_that_is_repeated_after_the_replacement_makes_no_generation() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 0 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.session("prj_a").await.batch_execute("UPDATE t SET n = 1").await.unwrap();
    let id = kit.begin("prj_a", DatabaseOperationKind::RestoreGeneration, Some(generation));
    kit.operate_until("prj_a", OperationPhase::Committing).await;
    eventually("the generation", async || kit.generations("prj_a", "pre_restore").len() == 2).await;
    let sealed = kit.generations("prj_a", "pre_restore").pop().unwrap();
    assert_eq!(seal_again(&mut kit).await.map(|generation| generation.key), Some(sealed.key));
    kit.advance("prj_a");
    kit.operate_until("prj_a", OperationPhase::Committing).await;
    let admin = kit.superuser("svc_node").await;
    admin.execute("DELETE FROM svc.dumps WHERE cause = $1", &[&id]).await.unwrap();
    assert_eq!(seal_again(&mut kit).await, None);
    kit.advance("prj_a");
    kit.operate_until("prj_a", OperationPhase::Reactivating).await;
    kit.advance("prj_a");
    kit.applied("prj_a").await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 0);
    assert_eq!(number(&admin, "SELECT count(*) FROM svc.dumps").await, 1);
}
