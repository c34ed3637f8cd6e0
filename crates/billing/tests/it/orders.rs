//! Paid orders of AI credit.

use billing::{AdjustmentError, Adjustments};
use futures_util::future::join_all;
use kernel::audit::Actor;
use serde_json::{Value, json};

use crate::kit::{CREDIT, Kit, order, subscription};

#[tokio::test]
async fn repeated_webhook_does_not_replace_a_later_customer() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let subscribed = subscription(org, "sub_1", "active", 1);
    assert!(kit.deliver_as("subscribed", &subscribed).await.unwrap());
    let mut paid = order(org, "order_1", 500);
    paid["data"]["customer_id"] = "cus_2".into();
    kit.deliver(&paid).await;
    // The event is still the newest one of the subscription.
    assert!(!kit.deliver_as("subscribed", &subscribed).await.unwrap());
    let customers = kit.database.rows("SELECT customer_id FROM billing.customers").await;
    assert_eq!(customers, [json!({ "customer_id": "cus_2" })]);
}

/// The buyer entered the email of a customer of another product of the operator.
#[tokio::test]
async fn customer_is_stored_only_with_the_external_id_of_the_organization() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    for mut event in [order(org, "order_1", 500), subscription(org, "sub_1", "active", 1)] {
        event["data"]["customer"]["external_id"] = Value::Null;
        event["data"]["metadata"]["org"] = org.to_string().into();
        kit.deliver(&event).await;
    }
    assert_eq!((kit.balance(org).await, kit.plan(org).await.as_str()), (500_000_000, "pro"));
    assert_eq!(kit.count("customers").await, 0);
    // The operator sets the external id, which changes the customer of the next event.
    kit.deliver(&subscription(org, "sub_1", "active", 2)).await;
    assert_eq!(kit.count("customers").await, 1);
}

#[tokio::test]
async fn order_is_credited_once_whatever_ids_it_arrives_under() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    for _ in 0..3 {
        // Credit does not change the plan.
        assert!(!kit.deliver(&order(org, "order_1", 500)).await);
    }
    assert_eq!(kit.balance(org).await, 500_000_000);
    kit.deliver(&order(org, "order_2", 1)).await;
    assert_eq!(kit.balance(org).await, 501_000_000);
    assert_eq!(kit.events(org).await, ["billing.credit", "billing.credit"]);
    let ledger = kit
        .database
        .rows(
            "SELECT ledger_id, kind, amount_micro_cents, balance_micro_cents, order_id FROM billing.ledger ORDER BY 1",
        )
        .await;
    let row = |id: i64, amount: i64, balance: i64, order: &str| {
        json!({ "ledger_id": id, "kind": "topup", "amount_micro_cents": amount, "balance_micro_cents": balance,
            "order_id": order })
    };
    assert_eq!(ledger, [row(1, 500_000_000, 500_000_000, "order_1"), row(2, 1_000_000, 501_000_000, "order_2")]);
}

#[tokio::test]
async fn only_positive_dollars_of_the_credit_product_are_credited() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let with = |field: &str, value: Value| {
        let mut event = order(org, "order_1", 500);
        event["data"][field] = value;
        event
    };
    for event in [
        with("currency", json!("eur")),
        with("currency", json!("USD")),
        with("currency", Value::Null),
        with("product_id", json!("product-domain")),
        with("product_id", Value::Null),
        with("net_amount", json!(0)),
        with("net_amount", json!(-500)),
    ] {
        assert!(!kit.deliver(&event).await, "{event}");
    }
    for (at, amount) in [json!(4.5), json!("500"), Value::Null, json!(1e300), json!(i64::MAX)].into_iter().enumerate() {
        let error = kit.deliver_as(&format!("msg_bad_{at}"), &with("net_amount", amount.clone())).await.unwrap_err();
        assert!(matches!(error, billing::WebhookError::Malformed("net_amount")), "{amount}: {error}");
    }
    let mut unusable = vec![with("product_id", json!(1)), with("product_id", json!(""))];
    unusable.extend(
        [json!({}), Value::Null, json!([]), json!("x")].map(|data| json!({ "type": "order.paid", "data": data })),
    );
    unusable.push(json!({ "type": "order.paid" }));
    for event in unusable {
        let error = kit.deliver_as("msg_unusable", &event).await.unwrap_err();
        assert!(matches!(error, billing::WebhookError::Malformed("product_id")), "{event}: {error}");
    }
    assert_eq!((kit.balance(org).await, kit.count("ledger").await, kit.events(org).await.len()), (0, 0, 0));
    let other = with("type", json!("x"));
    assert_eq!(other["data"]["product_id"], CREDIT);
    let mut created = order(org, "order_1", 500);
    created["type"] = "order.created".into();
    assert!(!kit.deliver(&created).await);
    assert_eq!(kit.balance(org).await, 0);
    // The malformed events did not use up their id.
    kit.deliver_as("msg_unusable", &order(org, "order_1", 500)).await.unwrap();
    assert_eq!(kit.balance(org).await, 500_000_000);
}

#[tokio::test]
async fn ledger_is_append_only() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    kit.deliver(&order(org, "order_1", 500)).await;
    for statement in
        ["UPDATE billing.ledger SET amount_micro_cents = 1", "DELETE FROM billing.ledger", "TRUNCATE billing.ledger"]
    {
        let mut connection = kit.store.connection().await.unwrap();
        let refused = diesel_async::SimpleAsyncConnection::batch_execute(&mut *connection, statement).await;
        assert!(refused.unwrap_err().to_string().contains("append-only"), "{statement}");
    }
}

/// Corrections by operators and orders change the balance in one order.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_corrections_and_orders_keep_the_ledger_consistent() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let (adjustments, actor) = (Adjustments::new(kit.store.clone()), Actor::operator("test"));
    let correct = async |amount| adjustments.adjust(&actor, org, amount, "a test").await;
    let orders = (0..10).map(|number| order(org, &format!("order_{number}"), 1)).collect::<Vec<_>>();
    let orders = join_all(orders.iter().map(|event| kit.deliver(event)));
    let (first, second, third, _) = tokio::join!(correct(-3_000_000), correct(-4_000_000), correct(2), orders);
    for corrected in [first, second, third] {
        corrected.unwrap();
    }
    assert_eq!(kit.balance(org).await, 3_000_002);
    kit.assert_consistent().await;
    let unknown = adjustments.adjust(&actor, kit.store.clock_rng().id(), 1, "a test").await;
    assert!(matches!(unknown, Err(AdjustmentError::UnknownOrg(_))), "{unknown:?}");
    assert!(matches!(correct(0).await, Err(AdjustmentError::NoAmount)));
}

/// Another server has another setting of the product, or the customer has another external id at the provider. Without
/// the credit, the top-up would prevent all later ones.
#[tokio::test]
async fn order_of_a_topup_is_credited_whatever_product_and_customer_it_names() {
    let kit = Kit::start().await;
    let (org, other) = (kit.org("acme").await, kit.org("other").await);
    let topup = async |number: i64| {
        kit.db_execute(&format!(
            "INSERT INTO billing.topup_orders (id, org_id, amount_micro_cents, order_id, state, created_at) \
             VALUES (gen_random_uuid(), '{}', 500000000, 'order_{number}', 'charged', now())",
            org.as_uuid()
        ))
        .await;
        order(org, &format!("order_{number}"), 500)
    };
    for (number, field, value) in [
        (1, "product_id", json!("product-other")),
        (2, "product_id", Value::Null),
        (3, "customer", json!({ "external_id": other.to_string() })),
        (4, "customer", json!({ "external_id": "unknown" })),
    ] {
        let mut event = topup(number).await;
        event["data"][field] = value;
        for _ in 0..2 {
            kit.deliver(&event).await;
            assert_eq!(kit.balance(org).await, number * 500_000_000, "{event}");
        }
    }
    assert_eq!(kit.count("topup_orders WHERE state <> 'credited'").await, 0);
    assert_eq!((kit.balance(other).await, kit.count("unassigned_events").await), (0, 0));
    // The amount of the credit is in dollars.
    let mut euros = topup(5).await;
    euros["data"]["currency"] = json!("eur");
    kit.deliver(&euros).await;
    assert_eq!(kit.balance(org).await, 4 * 500_000_000);
    kit.assert_consistent().await;
}
