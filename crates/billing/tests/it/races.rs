//! Concurrent deliveries.

use futures_util::future::join_all;

use crate::kit::{Kit, order, subscription};

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_redeliveries_are_applied_once() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    for round in 0..20 {
        let (plan, credit) = (if round % 2 == 0 { "active" } else { "canceled" }, format!("order_{round}"));
        let (id, event) = (format!("msg_{round}"), subscription(org, "sub_1", plan, round));
        let applied = join_all((0..10).map(|_| kit.deliver_as(&id, &event))).await;
        assert_eq!(applied.into_iter().filter(|applied| *applied.as_ref().unwrap()).count(), 1, "{round}");
        // The same order arrives under different ids.
        let event = order(org, &credit, 100);
        join_all((0..10).map(|_| kit.deliver(&event))).await;
    }
    assert_eq!(kit.balance(org).await, 20 * 100_000_000);
    assert_eq!(kit.count("ledger").await, 20);
    kit.assert_consistent().await;
}

/// The newest state applies, in whatever order the events arrive.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_events_of_two_subscriptions_end_in_the_right_plan() {
    let kit = Kit::start().await;
    for round in 0..20 {
        let org = kit.org(&format!("acme{round}")).await;
        let ids = [format!("sub_a{round}"), format!("sub_b{round}")];
        let mut events = Vec::new();
        for (id, last) in ids.iter().zip(["canceled", if round % 2 == 0 { "active" } else { "unpaid" }]) {
            events.extend((0..5).map(|at| subscription(org, id, if at % 2 == 0 { "active" } else { "paused" }, at)));
            events.push(subscription(org, id, last, 9));
        }
        events.rotate_left(round % 12);
        events.extend((0..5).map(|order_number| order(org, &format!("order_{round}_{order_number}"), 7)));
        join_all(events.iter().map(|event| kit.deliver(event))).await;
        assert_eq!(kit.plan(org).await, if round % 2 == 0 { "pro" } else { "free" }, "{round}");
        assert_eq!(kit.balance(org).await, 5 * 7_000_000);
        kit.assert_consistent().await;
    }
}

/// A crash between the effect and the response: Postgres has rolled back, so the redelivery applies the event.
#[tokio::test(flavor = "multi_thread")]
async fn failed_effect_leaves_the_id_free() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    kit.db_execute("ALTER TABLE billing.ledger ADD CONSTRAINT broken CHECK (amount_micro_cents < 0) NOT VALID").await;
    let event = order(org, "order_1", 500);
    assert!(matches!(kit.deliver_as("msg_1", &event).await, Err(billing::WebhookError::Store(_))));
    assert_eq!((kit.count("webhooks").await, kit.balance(org).await), (0, 0));
    kit.db_execute("ALTER TABLE billing.ledger DROP CONSTRAINT broken").await;
    kit.deliver_as("msg_1", &event).await.unwrap();
    assert_eq!((kit.count("webhooks").await, kit.balance(org).await), (1, 500_000_000));
}
