//! The metric of automatic top-ups that stay charged.

use crate::process::Process;
use crate::support::eventually;

/// Waits until the metric has this value.
async fn wait_for_stuck(server: &Process, count: u32) {
    let is_expected =
        |line: &str| line.starts_with("svc_billing_topups_stuck{") && line.ends_with(&format!(" {count}"));
    let expected = async || server.metrics().await.lines().any(is_expected).then_some(());
    eventually("the metric has the value", expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topup_that_stays_charged_for_an_hour_is_counted() {
    let mut server = Process::start().await;
    server.sign_in().await;
    let insert = "INSERT INTO billing.topup_orders (id, org_id, amount_micro_cents, order_id, state, created_at) \
        SELECT gen_random_uuid(), id, 500000000, 'order_1', 'charged', now() - interval '30 minutes' FROM orgs.orgs";
    server.database.run(insert).await;
    // The job runs every minute, and after a start.
    server.kill_and_restart().await;
    wait_for_stuck(&server, 0).await;
    server.database.run("UPDATE billing.topup_orders SET created_at = now() - interval '90 minutes'").await;
    server.kill_and_restart().await;
    wait_for_stuck(&server, 1).await;
    server.database.run("UPDATE billing.topup_orders SET state = 'credited'").await;
    server.kill_and_restart().await;
    wait_for_stuck(&server, 0).await;
}
