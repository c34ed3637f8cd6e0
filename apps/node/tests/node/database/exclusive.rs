//! Two nodes with one Postgres.

use super::kit::{Kit, eventually, number};

const STATE: &str = "
    SELECT concat((SELECT string_agg(datname, ',' ORDER BY datname) FROM pg_database),
        (SELECT string_agg(concat(rolname, rolcanlogin, rolpassword), ',' ORDER BY rolname) FROM pg_authid),
        (SELECT string_agg(d::text, ',' ORDER BY project) FROM svc.databases d))";
const REFUSAL: &str = "another node manages this Postgres server";

#[tokio::test(flavor = "multi_thread")]
async fn second_node_changes_nothing_until_the_first_ends() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    let admin = kit.superuser("svc_node").await;
    let read = async || admin.query_one(STATE, &[]).await.unwrap().get::<_, String>(0);
    let before = read().await;
    // The second control plane knows another project. Its node would remove the database that the first control plane
    // desires.
    let second = kit.second_node("prj_b").await;
    let refusals = || second.program.log().matches(REFUSAL).count();
    eventually("the refusal", async || refusals() > 0).await;
    // After a slow start, the node first announces its Postgres.
    let announces_none = async || second.core.announced().is_some_and(|announced| announced["database"].is_null());
    eventually("the announcement", announces_none).await;
    assert_eq!(read().await, before);
    assert_eq!(second.core.last_report_of("prj_b", "database"), None);
    // The first node continues to manage the server.
    kit.add_token("prj_a", None);
    kit.applied("prj_a").await;
    assert_eq!(refusals(), 1, "{}", second.program.log());

    kit.node.kill();
    eventually("the database of the second node", async || {
        let report = second.core.last_report_of("prj_b", "database");
        report.is_some_and(|report| report["ready"] == true)
    })
    .await;
    eventually("the announcement", async || !second.core.announced().unwrap()["database"].is_null()).await;
    assert_eq!(number(&admin, "SELECT count(*) FROM pg_database WHERE datname ~ '^db_'").await, 2);
    // The second node now manages the server, so the restarted first node must wait.
    kit.restart_node_after_kill();
    eventually("the refusal", async || kit.node.log().contains(REFUSAL)).await;
}
