//! Automatic top-ups.

use billing::{AutoTopupChange, BillingError, Charge, Notice, PaymentsError, TOP_UP_TOPIC};
use futures_util::future::join_all;
use kernel::{Limits, OrgId, ProjectId};
use store::Connection;
use testkit::random_id;
use uuid::Uuid;

use crate::kit::{Kit, actor, order};

pub const CENT: i64 = 1_000_000;
pub const AMOUNT: i64 = 500 * CENT;
/// The output tokens of a call that costs a dollar.
pub const DOLLAR: i64 = 100 * CENT / 24 + 1;

pub const ON: AutoTopupChange =
    AutoTopupChange { enabled: true, amount_micro_cents: Some(AMOUNT), threshold_micro_cents: Some(200 * CENT) };
pub const OFF: AutoTopupChange =
    AutoTopupChange { enabled: false, amount_micro_cents: None, threshold_micro_cents: None };

/// Creates an organization with a saved payment method, auto top-up below two dollars, and three dollars of credit.
pub async fn customer(kit: &Kit) -> (OrgId, ProjectId) {
    kit.provider.state().has_card = true;
    let customer = kit.customer("acme", 300).await;
    kit.clock.advance(1);
    let credit = kit.billing.set_auto_topup(&actor(), customer.0, ON).await.unwrap().unwrap();
    assert!(credit.auto_topup.enabled && credit.has_payment_method);
    customer
}

/// Returns the top-ups in the outbox.
pub async fn queued(kit: &Kit) -> Vec<Uuid> {
    let rows = format!("SELECT key FROM store.outbox WHERE topic = '{TOP_UP_TOPIC}' ORDER BY created_at");
    let rows = kit.database.rows(&rows).await;
    rows.iter().map(|row| row["key"].as_str().unwrap().parse().unwrap()).collect()
}

pub async fn states(kit: &Kit) -> Vec<String> {
    let rows = kit.database.rows("SELECT state FROM billing.topup_orders ORDER BY created_at, id").await;
    rows.iter().map(|row| row["state"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn settings_require_a_card_a_tier_and_a_smaller_threshold() {
    let kit = Kit::start().await;
    let (org, _) = kit.customer("acme", 0).await;
    let change = async |change| kit.billing.set_auto_topup(&actor(), org, change).await;
    assert!(matches!(change(ON).await, Err(BillingError::NoPaymentMethod)));
    kit.provider.state().has_card = true;
    for (amount, threshold, field) in [
        (None, Some(CENT), "amountMicroCents"),
        (Some(AMOUNT), None, "thresholdMicroCents"),
        (Some(AMOUNT + 1), Some(CENT), "amountMicroCents"),
        (Some(AMOUNT), Some(0), "thresholdMicroCents"),
        (Some(AMOUNT), Some(-1), "thresholdMicroCents"),
        (Some(AMOUNT), Some(AMOUNT), "thresholdMicroCents"),
    ] {
        let invalid =
            change(AutoTopupChange { enabled: true, amount_micro_cents: amount, threshold_micro_cents: threshold })
                .await;
        let Err(BillingError::Fields(invalid)) = invalid else { panic!("{amount:?} {threshold:?}: {invalid:?}") };
        assert!(invalid.details().to_string().contains(field), "{amount:?} {threshold:?}: {invalid}");
    }
    assert!(change(OFF).await.unwrap().is_none());
    assert_eq!(kit.events(org).await, Vec::<String>::new());
    for _ in 0..2 {
        let credit = change(ON).await.unwrap().unwrap();
        assert_eq!(credit.auto_topup.threshold_micro_cents, Some(200 * CENT));
        kit.clock.advance(1);
    }
    for _ in 0..2 {
        assert!(change(OFF).await.unwrap().is_none());
    }
    assert_eq!(kit.events(org).await, ["ai.autotopup.on", "ai.autotopup.off"]);
    let credit = kit.billing.credit(org).await.unwrap();
    assert_eq!((credit.auto_topup.enabled, credit.auto_topup.amount_micro_cents), (false, Some(AMOUNT)));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_below_the_threshold_trigger_one_topup() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    let ids: Vec<Uuid> = (0..20).map(|_| random_id()).collect();
    for id in &ids {
        kit.admit(project, *id).await.unwrap();
    }
    join_all(ids.iter().map(|id| kit.settle(*id, 0, DOLLAR))).await;
    let [topup] = queued(&kit).await[..] else { panic!("more than one") };
    kit.billing.charge_topup(topup).await.unwrap();
    // The charge credits nothing; the webhook does.
    assert!(kit.balance(org).await < 0);
    assert_eq!(states(&kit).await, ["charged"]);
    {
        let state = kit.provider.state();
        assert_eq!(state.finalized, ["draft_1"]);
        let order = &state.orders[0];
        assert_eq!((order.cents, order.purpose, &order.reference), (500, "ai-credit", &topup.to_string()));
    }
    kit.billing.charge_topup(topup).await.unwrap();
    assert_eq!(kit.provider.state().finalized.len(), 1);
    let before = kit.balance(org).await;
    for _ in 0..2 {
        kit.deliver(&order(org, "draft_1", 500)).await;
    }
    assert_eq!(kit.balance(org).await, before + AMOUNT);
    assert_eq!(states(&kit).await, ["credited"]);
    kit.assert_consistent().await;
}

#[tokio::test]
async fn topups_of_a_day_are_limited() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.deliver(&order(org, "order_2", 10_000)).await;
    // The threshold is above the balance after each call.
    kit.db_execute(
        "UPDATE billing.auto_topups SET amount_micro_cents = 20000000000, threshold_micro_cents = 19999999999",
    )
    .await;
    for day in 1..=2 {
        for number in 1..=5 {
            kit.clock.advance(60);
            kit.call(project, 1, 1).await;
            let created = queued(&kit).await.len();
            assert_eq!(created, 3 * (day - 1) + number.min(3), "{day} {number}");
            let topup = queued(&kit).await[created - 1];
            kit.billing.charge_topup(topup).await.unwrap();
            kit.deliver(&order(org, &format!("draft_{created}"), 1)).await;
        }
        let credit = kit.billing.credit(org).await.unwrap();
        assert_eq!((credit.auto_topups_today, credit.auto_topup_per_day), (3, 3));
        kit.clock.advance(24 * 3600);
        assert_eq!(kit.billing.credit(org).await.unwrap().auto_topups_today, 0);
    }
    // After the clock was set back, later top-ups do not count as those of today.
    kit.clock.advance_days(-3);
    assert_eq!(kit.billing.credit(org).await.unwrap().auto_topups_today, 0);
}

#[tokio::test]
async fn lost_response_is_resumed_with_the_same_order() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    let topup = queued(&kit).await[0];
    let lost = || Err(PaymentsError::Unavailable("the response was lost".to_owned()));
    kit.provider.state().charges.extend([lost(), lost()]);
    for _ in 0..2 {
        kit.billing.charge_topup(topup).await.unwrap_err();
        assert_eq!(states(&kit).await, ["pending"]);
    }
    // Turning auto top-up off does not abandon an order that may be paid.
    kit.billing.set_auto_topup(&actor(), org, OFF).await.unwrap();
    kit.billing.charge_topup(topup).await.unwrap();
    assert_eq!(kit.provider.state().finalized, ["draft_1", "draft_1", "draft_1"]);
    assert_eq!(states(&kit).await, ["charged"]);
    assert_eq!(kit.provider.state().orders.len(), 1);
}

#[tokio::test]
async fn event_may_precede_the_response() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    let topup = queued(&kit).await[0];
    kit.provider.state().charges.push_back(Err(PaymentsError::Unavailable("lost".to_owned())));
    kit.billing.charge_topup(topup).await.unwrap_err();
    kit.deliver(&order(org, "draft_1", 500)).await;
    kit.billing.charge_topup(topup).await.unwrap();
    assert_eq!(states(&kit).await, ["credited"]);
    assert_eq!(kit.provider.state().finalized.len(), 1);
}

#[tokio::test]
async fn declined_charge_turns_auto_topup_off() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    kit.clock.advance(1);
    let topup = queued(&kit).await[0];
    kit.provider.state().charges.push_back(Ok(Charge::Declined));
    for _ in 0..2 {
        kit.billing.charge_topup(topup).await.unwrap();
    }
    assert_eq!(kit.provider.state().notices, [(org, Notice::TopUpDeclined)]);
    assert!(!kit.billing.credit(org).await.unwrap().auto_topup.enabled);
    assert_eq!(kit.events(org).await, ["billing.credit", "ai.autotopup.on", "ai.autotopup.off"]);
    // Auto top-up stays off.
    kit.call(project, 1, 1).await;
    assert_eq!((queued(&kit).await.len(), states(&kit).await), (1, vec!["declined".to_owned()]));
}

#[tokio::test]
async fn organization_without_a_customer_is_declined() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    kit.db_execute("DELETE FROM billing.customers").await;
    kit.provider.state().has_card = false;
    kit.billing.charge_topup(queued(&kit).await[0]).await.unwrap();
    assert_eq!(kit.provider.state().notices, [(org, Notice::TopUpDeclined)]);
}

/// After an order that the provider rejects, the next top-ups are possible.
#[tokio::test]
async fn rejected_order_turns_auto_topup_off() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    kit.clock.advance(1);
    kit.provider.state().charges.push_back(Err(PaymentsError::Rejected("status 422".to_owned())));
    kit.billing.charge_topup(queued(&kit).await[0]).await.unwrap();
    assert_eq!(states(&kit).await, ["declined"]);
    assert_eq!(kit.provider.state().notices, [(org, Notice::TopUpDeclined)]);
    kit.billing.set_auto_topup(&actor(), org, ON).await.unwrap();
    kit.call(project, 1, 1).await;
    assert_eq!(states(&kit).await, ["declined", "pending"]);
}

/// As if the provider was down until the outbox made the message a dead letter.
#[tokio::test]
async fn topup_of_a_dead_letter_is_declined_and_never_charged() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    kit.clock.advance(1);
    let topup = queued(&kit).await[0];
    kit.provider.state().charges.push_back(Err(PaymentsError::Unavailable("status 503".to_owned())));
    kit.billing.charge_topup(topup).await.unwrap_err();
    for _ in 0..2 {
        let give_up = async |tx: &mut Connection| kit.billing.give_up_topup(tx, topup).await;
        kit.store.transaction_unaudited(give_up).await.unwrap();
    }
    assert_eq!(states(&kit).await, ["declined"]);
    assert_eq!(kit.provider.state().notices, [(org, Notice::TopUpDeclined)]);
    assert!(!kit.billing.credit(org).await.unwrap().auto_topup.enabled);
    assert_eq!(kit.events(org).await, ["billing.credit", "ai.autotopup.on", "ai.autotopup.off"]);
    // An operator retries the dead letter.
    kit.billing.charge_topup(topup).await.unwrap();
    assert_eq!(kit.provider.state().finalized, ["draft_1"]);
    // The next top-up is possible.
    kit.billing.set_auto_topup(&actor(), org, ON).await.unwrap();
    kit.call(project, 1, 1).await;
    assert_eq!(states(&kit).await, ["declined", "pending"]);
    // The provider charged the order after all.
    let before = kit.balance(org).await;
    kit.deliver(&order(org, "draft_1", 500)).await;
    assert_eq!(kit.balance(org).await, before + AMOUNT);
    assert_eq!(states(&kit).await, ["credited", "pending"]);
}

/// Without credit, no call is admitted, so no deduction starts a top-up. Instead, a rejected call starts one.
#[tokio::test(flavor = "multi_thread")]
async fn refused_calls_start_one_topup() {
    let mut limits = Limits::default();
    limits.free.ai_spend_per_day_micro_cents = i64::MAX;
    let kit = Kit::with(limits).await;
    let (org, project) = kit.customer("acme", 0).await;
    kit.provider.state().has_card = true;
    kit.admit(project, random_id()).await.unwrap_err();
    assert_eq!(states(&kit).await, Vec::<String>::new());
    kit.billing.set_auto_topup(&actor(), org, ON).await.unwrap();
    for refused in join_all((0..10).map(|_| kit.admit(project, random_id()))).await {
        refused.unwrap_err();
    }
    let [topup] = queued(&kit).await[..] else { panic!("not one") };
    kit.billing.charge_topup(topup).await.unwrap();
    kit.deliver(&order(org, "draft_1", 500)).await;
    assert_eq!(kit.balance(org).await, AMOUNT);
    // The limit of the day applies, and the first call of the next day starts the next top-up.
    for number in 2..=3 {
        kit.clock.advance(1);
        kit.call(project, 0, 6 * DOLLAR).await;
        kit.billing.charge_topup(queued(&kit).await[number - 1]).await.unwrap();
        kit.deliver(&order(org, &format!("draft_{number}"), 500)).await;
    }
    kit.call(project, 0, 6 * DOLLAR).await;
    kit.admit(project, random_id()).await.unwrap_err();
    assert_eq!(states(&kit).await, ["credited", "credited", "credited"]);
    kit.clock.advance(24 * 3600);
    kit.admit(project, random_id()).await.unwrap_err();
    assert_eq!(states(&kit).await, ["credited", "credited", "credited", "pending"]);
    kit.assert_consistent().await;
}

#[tokio::test]
async fn payment_method_is_looked_up_once_a_minute() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let shown = async || kit.billing.credit(org).await.unwrap().has_payment_method;
    assert!(!shown().await);
    // A new payment method is shown immediately.
    kit.provider.state().has_card = true;
    for _ in 0..5 {
        assert!(shown().await);
    }
    assert_eq!(kit.provider.state().card_lookups, 2);
    kit.provider.state().has_card = false;
    kit.clock.advance(60);
    assert!(!shown().await);
    // A change of auto top-up always checks the payment method.
    kit.provider.state().has_card = true;
    assert!(shown().await);
    kit.provider.state().has_card = false;
    let changed = kit.billing.set_auto_topup(&actor(), org, ON).await;
    assert!(matches!(changed, Err(BillingError::NoPaymentMethod)));
    assert!(!shown().await);
}
