//! Calls in progress reduce the credit and the spend that further calls can use.

use billing::{CallProgress, CallRefusal, CallRequest, CallResult};
use futures_util::future::join_all;
use kernel::{Limits, ProjectId};
use testkit::{four_at_a_time, random_id};
use uuid::Uuid;

use crate::kit::{Kit, SMALL, order};

const CENT: i64 = 1_000_000;
/// The input of a call that costs six cents.
const LARGE_INPUT: u32 = 1_000_000;
const COST: i64 = 6 * CENT;

/// Requests the admission of a call that costs six cents.
async fn admit_large(kit: &Kit, project: ProjectId, id: Uuid) -> CallResult {
    admit(kit, project, id, LARGE_INPUT, Some(0)).await
}

/// Requests the admission of a call with this input, whose request has this output limit.
async fn admit(
    kit: &Kit,
    project: ProjectId,
    id: Uuid,
    input_tokens: u32,
    max_output_tokens: Option<u32>,
) -> CallResult {
    let request = CallRequest { id, project, model: SMALL.to_owned(), input_tokens, max_output_tokens };
    kit.billing.admit_call(kit.node, &request).await.unwrap()
}

/// Requests the admission of 20 concurrent calls, and returns the ids of the admitted ones.
async fn admit_concurrently(kit: &Kit, projects: &[ProjectId]) -> Vec<Uuid> {
    let projects = projects.iter().cycle().take(20);
    let requests = projects.map(|project| async move {
        let id = random_id();
        admit_large(kit, *project, id).await.ok().map(|_| id)
    });
    join_all(requests).await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_share_the_balance_of_their_organization() {
    let kit = Kit::start().await;
    let (org, first) = kit.customer("acme", 5).await;
    let projects = [first, kit.project(org, "blog").await];
    for _ in 0..5 {
        // The balance is less than the cost of a call, so one call may overdraw it, and no further one.
        let admitted = admit_concurrently(&kit, &projects).await;
        let [id] = admitted[..] else { panic!("not one: {admitted:?}") };
        for project in projects {
            let refused = admit_large(&kit, project, random_id()).await;
            assert_eq!(refused.unwrap_err(), CallRefusal::InsufficientCredit);
        }
        kit.assert_consistent().await;
        assert!(kit.billing.settle_call(kit.node, id, None).await.unwrap());
    }
    let id = random_id();
    admit_large(&kit, first, id).await.unwrap();
    assert!(kit.settle(id, i64::from(LARGE_INPUT), 0).await);
    assert_eq!(kit.balance(org).await, -CENT);
    assert_eq!(admit_large(&kit, first, random_id()).await.unwrap_err(), CallRefusal::InsufficientCredit);
    // With seven cents, a second call may begin while the first one is open.
    kit.deliver(&order(org, "order_2", 8)).await;
    assert_eq!(admit_concurrently(&kit, &projects).await.len(), 2);
    kit.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_share_the_spend_of_their_project() {
    let mut limits = Limits::default();
    limits.free.ai_requests_per_minute = 1_000;
    limits.free.ai_spend_per_day_micro_cents = COST;
    let kit = Kit::with(limits).await;
    let (org, first) = kit.customer("acme", 1_000).await;
    let second = kit.project(org, "blog").await;
    for _ in 0..5 {
        let admitted = admit_concurrently(&kit, &[first]).await;
        let [id] = admitted[..] else { panic!("not one: {admitted:?}") };
        let refused = admit_large(&kit, first, random_id()).await;
        assert_eq!(refused.unwrap_err(), CallRefusal::SpendLimit { limit: COST });
        kit.assert_consistent().await;
        assert!(kit.billing.settle_call(kit.node, id, None).await.unwrap());
    }
    let id = random_id();
    admit_large(&kit, first, id).await.unwrap();
    // The limit applies to each project.
    admit_large(&kit, second, random_id()).await.unwrap();
    assert!(kit.settle(id, i64::from(LARGE_INPUT), 0).await);
    let refused = admit_large(&kit, first, random_id()).await;
    assert_eq!(refused.unwrap_err(), CallRefusal::SpendLimit { limit: COST });
    assert_eq!(kit.balance(org).await, 1_000 * CENT - COST);
    kit.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_output_of_open_calls_reduces_the_credit() {
    let kit = Kit::start().await;
    let (org, project) = kit.customer("acme", 1).await;
    let (_, other) = kit.customer("other", 1).await;
    let (id, of_other) = (random_id(), random_id());
    kit.admit(project, id).await.unwrap();
    kit.admit(other, of_other).await.unwrap();
    // 41,667 output tokens cost more than a cent.
    let reporting = &kit;
    let reports = (0..10).map(|number| async move {
        let open = [(id, 41_667 - number), (of_other, 10)];
        let mut open = open.map(|(id, output_tokens)| CallProgress { id, output_tokens });
        if number % 2 == 1 {
            open.reverse();
        }
        reporting.billing.report_open_calls(reporting.node, &open).await.unwrap();
    });
    join_all(reports).await;
    kit.assert_consistent().await;
    assert_eq!(kit.admit(project, random_id()).await.unwrap_err(), CallRefusal::InsufficientCredit);
    kit.admit(other, random_id()).await.unwrap();
    // A lost call no longer holds its estimate, which is deducted.
    kit.clock.advance(15 * 60 + 1);
    kit.billing.end_lost_calls().await.unwrap();
    kit.assert_consistent().await;
    assert_eq!(kit.balance(org).await, CENT - 10 * 6 - 41_667 * 24);
    // The node settles the call with a smaller usage.
    assert!(!kit.settle(id, 10, 1).await);
    kit.admit(project, random_id()).await.unwrap();
    kit.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_overdraw_the_balance_by_the_cost_of_one_call() {
    let kit = Kit::start().await;
    // A request without a limit counts as one of 4,096 tokens. The context of the model limits any request.
    let limits = [("default", None, 4_096), ("limited", Some(10_000), 10_000), ("context", Some(u32::MAX), 1_000_000)];
    for (slug, max_output_tokens, output) in limits {
        let (org, project) = kit.customer(slug, 1).await;
        let kit = &kit;
        let requests = (0..30).map(|_| async move {
            let id = random_id();
            admit(kit, project, id, 10, max_output_tokens).await.ok().map(|_| id)
        });
        let admitted: Vec<Uuid> = four_at_a_time(requests).await.into_iter().flatten().collect();
        kit.assert_consistent().await;
        // Calls are admitted while those before them cost less than the balance.
        let cost = 10 * 6 + output * 24;
        assert_eq!(admitted.len() as i64, (CENT - 1) / cost + 1, "{slug}");
        for id in admitted {
            assert!(kit.settle(id, 10, output).await);
        }
        let balance = kit.balance(org).await;
        assert!((-cost..=0).contains(&balance), "{slug}: {balance}");
        kit.assert_consistent().await;
    }
}

#[tokio::test]
async fn output_limit_of_the_plan_limits_the_expected_output() {
    let mut limits = Limits::default();
    limits.free.ai_max_output_tokens = 8_192;
    let kit = Kit::with(limits).await;
    let (_, project) = kit.customer("acme", 1).await;
    let held = async || kit.database.number("SELECT held_micro_cents FROM billing.accounts").await;
    // The node adds the limit of the plan to a request without one.
    for max_output_tokens in [None, Some(8_192), Some(10_000)] {
        let id = random_id();
        admit(&kit, project, id, 10, max_output_tokens).await.unwrap();
        assert_eq!(held().await, 10 * 6 + 8_192 * 24);
        // Reported output raises the held cost only beyond the expected output.
        for (output_tokens, expected) in [(8_192, 8_192), (8_193, 8_193), (7, 8_193)] {
            kit.billing.report_open_calls(kit.node, &[CallProgress { id, output_tokens }]).await.unwrap();
            assert_eq!(held().await, 10 * 6 + expected * 24);
        }
        assert!(kit.settle(id, 10, 1).await);
        assert_eq!(held().await, 0);
        kit.assert_consistent().await;
    }
}
