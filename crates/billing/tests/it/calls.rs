//! Admission and deduction of calls of AI models.

use billing::{CallProgress, CallRefusal, CallRequest, CallUsage, Notice};
use futures_util::future::join_all;
use kernel::{Limits, NodeId, Plan};
use serde_json::{Value, json};
use testkit::{four_at_a_time, random_id};

use crate::kit::{CHEAP, Kit, SMALL, order};

const CENT: i64 = 1_000_000;

fn limits(per_minute: u32, spend_per_day: i64) -> Limits {
    let mut limits = Limits::default();
    limits.free.ai_requests_per_minute = per_minute;
    limits.free.ai_spend_per_day_micro_cents = spend_per_day;
    limits
}

#[tokio::test]
async fn call_is_deducted_once_at_the_prices_of_its_admission() {
    let kit = Kit::start().await;
    let (org, project) = kit.customer("acme", 1).await;
    let id = random_id();
    let admission = kit.admit(project, id).await.unwrap();
    let shown = (admission.upstream_model.as_str(), admission.context_tokens, admission.max_output_tokens);
    assert_eq!(shown, ("small-v1", 1_000_000, 0));
    assert_eq!(kit.balance(org).await, CENT);
    assert!(kit.settle(id, 100, 7).await);
    for _ in 0..3 {
        assert!(!kit.settle(id, 100, 7).await);
        assert!(!kit.billing.settle_call(kit.node, id, None).await.unwrap());
    }
    let cost = 100 * 6 + 7 * 24;
    assert_eq!(kit.ledger(org).await, [("topup".into(), CENT, CENT), ("call".into(), -cost, CENT - cost)]);
    // The costs of input and output are both rounded up.
    let id = random_id();
    kit.admit_model(project, id, CHEAP).await.unwrap();
    assert!(kit.settle(id, 1, 4).await);
    assert_eq!(kit.balance(org).await, CENT - cost - 1 - 2);
    let row = json!(kit.billing.ledger(org, 1, None).await.unwrap().items);
    let fields = ["ledger_id", "kind", "project", "model", "inputTokens", "outputTokens", "estimated"];
    let row: Vec<&Value> = fields.iter().map(|field| &row[0][field]).collect();
    assert_eq!(json!(row), json!([3, "call", "site", CHEAP, 1, 4, false]));
    let status = kit.billing.ai_status(org, Plan::Free, project, true).await.unwrap();
    assert_eq!((status.usage24h.calls, status.usage24h.input_tokens, status.usage24h.output_tokens), (2, 101, 11));
    assert_eq!((status.spent_micro_cents_24h, status.balance_micro_cents), (cost + 3, CENT - cost - 3));
    kit.assert_consistent().await;
}

#[tokio::test]
async fn refused_calls_leave_no_row_and_name_their_reason() {
    let kit = Kit::with(limits(2, 5_000)).await;
    let (org, project) = kit.customer("acme", 0).await;
    let refused = async |id| kit.admit(project, id).await.unwrap_err();
    assert_eq!(refused(random_id()).await, CallRefusal::InsufficientCredit);
    kit.deliver(&order(org, "order_1", 1)).await;
    let unknown = kit.admit_model(project, random_id(), "gpt-99").await;
    assert_eq!(unknown.unwrap_err(), CallRefusal::ModelNotFound);
    let stranger: NodeId = kit.store.clock_rng().id();
    let request =
        CallRequest { id: random_id(), project, model: SMALL.to_owned(), input_tokens: 1, max_output_tokens: None };
    assert_eq!(kit.billing.admit_call(stranger, &request).await.unwrap().unwrap_err(), CallRefusal::NotGranted);
    assert_eq!(kit.count("calls").await, 0);

    // The limit is two calls per minute.
    kit.clock.advance(60 - kit.now().unix_seconds().rem_euclid(60) + 20);
    for _ in 0..2 {
        kit.call(project, 1, 1).await;
    }
    let id = random_id();
    assert_eq!(refused(id).await, CallRefusal::RateLimited { per_minute: 2, retry_after: 40 });
    kit.clock.advance(40);
    // A rejected call may be admitted later, under the same id.
    kit.admit(project, id).await.unwrap();
    // The limit is 5,000 microcents in 24 hours. The call that reaches the limit is still admitted.
    assert!(kit.settle(id, 2_000, 0).await);
    kit.clock.advance(60);
    assert_eq!(refused(random_id()).await, CallRefusal::SpendLimit { limit: 5_000 });
    kit.clock.advance(24 * 3600 - 60);
    assert_eq!(refused(random_id()).await, CallRefusal::SpendLimit { limit: 5_000 });
    kit.clock.advance(1);
    kit.call(project, 1, 1).await;
    let status = kit.billing.ai_status(org, Plan::Free, project, true).await.unwrap();
    assert_eq!((status.usage24h.calls, status.spent_micro_cents_24h), (1, 30));

    kit.db_execute("DELETE FROM resources.grants").await;
    assert_eq!(refused(random_id()).await, CallRefusal::NotGranted);
    kit.assert_consistent().await;
}

#[tokio::test]
async fn clock_that_was_set_back_neither_blocks_calls_nor_prolongs_their_spend() {
    let kit = Kit::with(limits(1, i64::MAX)).await;
    let (org, project) = kit.customer("acme", 1).await;
    kit.clock.advance_days(2);
    kit.call(project, 1, 0).await;
    kit.clock.advance_days(-2);
    kit.call(project, 1, 0).await;
    let refused = kit.admit(project, random_id()).await.unwrap_err();
    assert!(matches!(refused, CallRefusal::RateLimited { .. }), "{refused:?}");
    let spent = async || kit.billing.ai_status(org, Plan::Free, project, true).await.unwrap().spent_micro_cents_24h;
    // The time of the first call is still in the future.
    assert_eq!(spent().await, 6);
    kit.deliver(&order(org, "order_1", 1)).await;
    kit.clock.advance(24 * 3600);
    assert_eq!(spent().await, 0);
    kit.call(project, 1, 0).await;
    assert_eq!(spent().await, 6);
    // The time of the first call is past, and no call follows it.
    kit.clock.advance_days(3);
    assert_eq!(spent().await, 0);
}

#[tokio::test]
async fn input_above_the_limit_of_the_plan_is_refused() {
    let mut limits = Limits::default();
    (limits.free.ai_max_input_tokens, limits.free.ai_max_output_tokens) = (9, 100);
    (limits.pro.ai_max_input_tokens, limits.pro.ai_max_output_tokens) = (10, 200);
    let kit = Kit::with(limits).await;
    let (org, project) = kit.customer("acme", 1).await;
    let refusal = kit.admit(project, random_id()).await.unwrap_err();
    assert_eq!(refusal, CallRefusal::ContextLengthExceeded { tokens: 10, limit: 9 });
    kit.db_execute(&format!("UPDATE orgs.orgs SET plan = 'pro' WHERE id = '{}'", org.as_uuid())).await;
    assert_eq!(kit.admit(project, random_id()).await.unwrap().max_output_tokens, 200);
}

#[tokio::test]
async fn call_that_ended_before_its_request_arrived_is_not_admitted() {
    let kit = Kit::start().await;
    let (org, project) = kit.customer("acme", 1).await;
    let id = random_id();
    assert!(kit.billing.settle_call(kit.node, id, None).await.unwrap());
    assert_eq!(kit.admit(project, id).await.unwrap_err(), CallRefusal::NotGranted);
    // Only the node that made a call can end it.
    let id = random_id();
    kit.admit(project, id).await.unwrap();
    let stranger: NodeId = kit.store.clock_rng().id();
    let usage = CallUsage { input_tokens: 1, output_tokens: 1, estimated: false };
    for usage in [None, Some(usage)] {
        assert!(!kit.billing.settle_call(stranger, id, usage).await.unwrap());
    }
    assert!(kit.billing.settle_call(kit.node, id, None).await.unwrap());
    assert!(!kit.settle(id, 1, 1).await);
    assert_eq!(kit.balance(org).await, CENT);
}

#[tokio::test]
async fn lost_calls_end_at_their_estimate() {
    let kit = Kit::start().await;
    let (org, project) = kit.customer("acme", 1).await;
    let (lost, open) = (random_id(), random_id());
    for id in [lost, open] {
        kit.admit(project, id).await.unwrap();
        let progress = [CallProgress { id, output_tokens: 5 }];
        kit.billing.report_open_calls(kit.node, &progress).await.unwrap();
    }
    kit.clock.advance(10 * 60);
    kit.billing.report_open_calls(kit.node, &[CallProgress { id: open, output_tokens: 50 }]).await.unwrap();
    kit.clock.advance(5 * 60 + 1);
    kit.billing.end_lost_calls().await.unwrap();
    let estimate = 10 * 6 + 5 * 24;
    assert_eq!(kit.balance(org).await, CENT - estimate);
    let row = kit.billing.ledger(org, 1, None).await.unwrap().items.remove(0);
    assert_eq!((row.estimated, row.input_tokens, row.output_tokens), (true, Some(10), Some(5)));
    // The node is back, and settles both calls. Another node cannot correct the estimate.
    let stranger: NodeId = kit.store.clock_rng().id();
    assert!(!kit.billing.settle_call(stranger, lost, None).await.unwrap());
    let usage = 1_000 * 6 + 1_000 * 24;
    for _ in 0..3 {
        assert!(!kit.settle(lost, 1_000, 1_000).await);
        assert_eq!(kit.balance(org).await, CENT - usage);
    }
    let row = json!(kit.billing.ledger(org, 1, None).await.unwrap().items.remove(0));
    let fields = ["kind", "amountMicroCents", "project", "model", "inputTokens", "estimated"];
    let row: Vec<&Value> = fields.iter().map(|field| &row[field]).collect();
    assert_eq!(json!(row), json!(["adjust", estimate - usage, "site", SMALL, null, false]));
    assert!(kit.settle(open, 1, 1).await);
    assert_eq!(kit.balance(org).await, CENT - usage - 30);
    kit.billing.end_lost_calls().await.unwrap();
    assert_eq!(kit.count("calls").await, 2);
    kit.clock.advance(31 * 24 * 3600);
    kit.billing.end_lost_calls().await.unwrap();
    assert_eq!((kit.count("calls").await, kit.balance(org).await), (0, CENT - usage - 30));
    kit.assert_consistent().await;
}

/// A run of the job continues until no call is left.
#[tokio::test]
async fn any_number_of_calls_is_ended_and_deleted() {
    let kit = Kit::start().await;
    kit.db_execute(&format!(
        "INSERT INTO billing.calls (id, node_id, org_id, project_id, project, model, input_price, output_price, \
             input_tokens, seen_at) \
         SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'site', '{SMALL}', 1, 1, 1, \
             '{}'::timestamptz - interval '1 hour' \
         FROM generate_series(1, 1001)",
        kit.now()
    ))
    .await;
    kit.billing.end_lost_calls().await.unwrap();
    assert_eq!((kit.count("calls").await, kit.count("calls WHERE ended_at IS NULL").await), (1001, 0));
    kit.clock.advance(31 * 24 * 3600);
    kit.billing.end_lost_calls().await.unwrap();
    assert_eq!(kit.count("calls").await, 0);
}

/// The node reports that the upstream refused a call whose estimated cost was deducted. The estimate counts at most the
/// tokens of the model's context.
#[tokio::test]
async fn lost_call_that_was_free_is_returned() {
    let kit = Kit::start().await;
    let (org, project) = kit.customer("acme", 1).await;
    let id = random_id();
    let request =
        CallRequest { id, project, model: CHEAP.to_owned(), input_tokens: 1_000_000, max_output_tokens: None };
    kit.billing.admit_call(kit.node, &request).await.unwrap().unwrap();
    kit.clock.advance(15 * 60 + 1);
    kit.billing.end_lost_calls().await.unwrap();
    assert_eq!(kit.balance(org).await, CENT - 2_667);
    for _ in 0..2 {
        assert!(!kit.billing.settle_call(kit.node, id, None).await.unwrap());
        assert_eq!(kit.balance(org).await, CENT);
    }
    kit.assert_consistent().await;
}

#[tokio::test]
async fn exhausted_credit_is_notified_once_each_time() {
    let kit = Kit::start().await;
    let (org, project) = kit.customer("acme", 1).await;
    let ids = [random_id(), random_id(), random_id()];
    for id in ids {
        kit.admit(project, id).await.unwrap();
    }
    // The admitted calls may overdraw the account.
    for id in ids {
        assert!(kit.settle(id, 200_000, 0).await);
    }
    assert_eq!(kit.balance(org).await, CENT - 3_600_000);
    assert_eq!(kit.admit(project, random_id()).await.unwrap_err(), CallRefusal::InsufficientCredit);
    assert_eq!(kit.provider.state().notices, [(org, Notice::AiCreditLimit)]);
    kit.deliver(&order(org, "order_2", 3)).await;
    kit.call(project, 200_000, 0).await;
    assert_eq!(kit.provider.state().notices.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_settlements_deduct_once() {
    let kit = Kit::start().await;
    let (org, project) = kit.customer("acme", 100).await;
    for round in 1..=20 {
        let id = random_id();
        kit.admit(project, id).await.unwrap();
        kit.clock.advance(15 * 60 + 1);
        let settles = join_all((0..10).map(|_| kit.settle(id, 10, 0)));
        let (settled, ended) = tokio::join!(settles, kit.billing.end_lost_calls());
        ended.unwrap();
        assert!(settled.into_iter().filter(|first| *first).count() <= 1);
        // The usage and the estimate are the same here, so nothing is corrected.
        assert_eq!(kit.balance(org).await, 100 * CENT - round * 60, "{round}");
    }
    kit.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_settlements_correct_an_estimate_once() {
    let kit = Kit::start().await;
    let (org, project) = kit.customer("acme", 100).await;
    for round in 1..=10 {
        let id = random_id();
        kit.admit(project, id).await.unwrap();
        kit.clock.advance(15 * 60 + 1);
        let settles = join_all((0..5).map(|_| kit.settle(id, 1_000, 0)));
        let (_, ended) = tokio::join!(settles, kit.billing.end_lost_calls());
        ended.unwrap();
        kit.settle(id, 1_000, 0).await;
        assert_eq!(kit.balance(org).await, 100 * CENT - round * 6_000, "{round}");
    }
    kit.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_do_not_exceed_the_limit_of_the_minute() {
    let kit = Kit::with(limits(7, i64::MAX)).await;
    let (_, project) = kit.customer("acme", 100).await;
    for _ in 0..5 {
        kit.clock.advance(60);
        let admitted = four_at_a_time((0..20).map(|_| kit.admit(project, random_id()))).await;
        assert_eq!(admitted.iter().filter(|admitted| admitted.is_ok()).count(), 7);
    }
}

/// If a call is settled before its request for admission arrives, the call is either ended or never admitted.
#[tokio::test(flavor = "multi_thread")]
async fn admission_and_end_of_a_call_do_not_leave_it_open() {
    let kit = Kit::with(limits(u32::MAX, i64::MAX)).await;
    let (org, project) = kit.customer("acme", 100).await;
    for _ in 0..50 {
        let id = random_id();
        let (_, ended) = tokio::join!(kit.admit(project, id), kit.billing.settle_call(kit.node, id, None));
        assert!(ended.unwrap());
    }
    assert_eq!(kit.database.number("SELECT count(*) FROM billing.calls WHERE ended_at IS NULL").await, 0);
    assert_eq!(kit.balance(org).await, 100 * CENT);
}
