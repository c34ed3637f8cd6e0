//! Clocks that differ from that of the control plane.

use std::time::Duration;

use super::kit::{Kit, eventually, number};

#[tokio::test(flavor = "multi_thread")]
async fn tombstones_stay_while_the_clocks_differ() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let generation = kit.generation("prj_a").await;
    kit.restore("prj_a", &generation).await;
    let admin = kit.superuser("svc_node").await;
    assert!(!kit.node.log().contains("differ: deletions pause"), "the clocks agree");
    kit.node.kill();
    admin.batch_execute("UPDATE svc.tombstones SET drop_at = now() - interval '1 second'").await.unwrap();
    kit.core.set_clock_back(Duration::from_secs(2 * 60 * 60));
    kit.restart_node_after_kill();
    kit.change("prj_a", |_| ());
    kit.applied("prj_a").await;
    eventually("the pause", async || kit.node.log().contains("differ: deletions pause")).await;
    let tombstones = "SELECT count(*) FROM pg_database WHERE datname ~ '^old_'";
    // A sweep drops stray roles. When the second stray role is gone, a whole sweep has run.
    let stray = "load_01jd00000000000000000stray";
    for _ in 0..2 {
        admin.batch_execute(&format!("CREATE ROLE {stray}")).await.unwrap();
        let roles = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{stray}'");
        eventually("a sweep", async || number(&admin, &roles).await == 0).await;
    }
    assert_eq!(number(&admin, tombstones).await, 1);
    kit.core.set_clock_back(Duration::ZERO);
    kit.change("prj_a", |_| ());
    kit.applied("prj_a").await;
    eventually("the end of the tombstone", async || number(&admin, tombstones).await == 0).await;
}
