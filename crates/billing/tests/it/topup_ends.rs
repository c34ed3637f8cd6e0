//! Top-ups that end without their event: by a change of the settings, or by an operator.

use std::sync::Arc;

use billing::{AdjustmentError, Adjustments, AutoTopupChange};
use kernel::audit::Actor;
use tokio::sync::Semaphore;

use crate::kit::{Kit, actor, order};
use crate::topups::{AMOUNT, CENT, DOLLAR, OFF, ON, customer, queued, states};

#[tokio::test]
async fn topup_is_canceled_when_it_was_turned_off_before_the_charge() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    kit.billing.set_auto_topup(&actor(), org, OFF).await.unwrap();
    kit.billing.charge_topup(queued(&kit).await[0]).await.unwrap();
    assert_eq!(states(&kit).await, ["canceled"]);
    assert_eq!(kit.provider.state().orders.len(), 0);
}

/// As if the provider was down until the settings changed, so that the draft order does not exist.
#[tokio::test]
async fn topup_with_previous_settings_is_canceled_before_its_order_exists() {
    for turns_off in [true, false] {
        let kit = Kit::start().await;
        let (org, project) = customer(&kit).await;
        let change = async |change| {
            kit.clock.advance(1);
            kit.billing.set_auto_topup(&actor(), org, change).await.unwrap();
        };
        change(AutoTopupChange { amount_micro_cents: Some(10_000 * CENT), ..ON }).await;
        kit.call(project, 0, 2 * DOLLAR).await;
        assert_eq!(states(&kit).await, ["pending"]);
        if turns_off {
            change(OFF).await;
            assert_eq!(states(&kit).await, ["canceled"]);
        }
        change(ON).await;
        assert_eq!(states(&kit).await, ["canceled"]);
        kit.billing.charge_topup(queued(&kit).await[0]).await.unwrap();
        assert!(kit.provider.state().orders.is_empty());
        // The next call starts a top-up with the present amount.
        kit.clock.advance(1);
        kit.call(project, 1, 1).await;
        kit.billing.charge_topup(queued(&kit).await[1]).await.unwrap();
        assert_eq!(states(&kit).await, ["canceled", "charged"]);
        assert_eq!(kit.provider.state().orders[0].cents, 500);
        // Only orders count towards the limit of the day.
        assert_eq!(kit.billing.credit(org).await.unwrap().auto_topups_today, 1);
    }
}

/// As if the settings changed between the statement of the deduction and the insertion of the top-up.
#[tokio::test]
async fn topup_with_another_amount_than_the_settings_is_canceled() {
    let kit = Kit::start().await;
    let (_, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    kit.db_execute("UPDATE billing.auto_topups SET amount_micro_cents = 2 * amount_micro_cents").await;
    kit.billing.charge_topup(queued(&kit).await[0]).await.unwrap();
    assert_eq!(states(&kit).await, ["canceled"]);
    assert!(kit.provider.state().orders.is_empty());
}

#[tokio::test]
async fn order_that_is_created_while_auto_topup_is_turned_off_stays_a_draft() {
    let kit = Kit::start().await;
    let (org, project) = customer(&kit).await;
    kit.call(project, 0, 2 * DOLLAR).await;
    let topup = queued(&kit).await[0];
    let gate = Arc::new(Semaphore::new(0));
    kit.provider.state().gate = Some(gate.clone());
    let turn_off = async {
        while kit.provider.state().orders.is_empty() {
            tokio::task::yield_now().await;
        }
        kit.billing.set_auto_topup(&actor(), org, OFF).await.unwrap();
        gate.add_permits(1);
    };
    let (charged, ()) = tokio::join!(kit.billing.charge_topup(topup), turn_off);
    charged.unwrap();
    assert_eq!(states(&kit).await, ["canceled"]);
    let state = kit.provider.state();
    assert_eq!((state.orders.len(), state.finalized.len(), state.notices.len()), (1, 0, 0));
}

/// The event `order.paid` was recorded without an effect.
#[tokio::test]
async fn operator_ends_a_charged_topup_with_or_without_credit() {
    for is_credited in [true, false] {
        let kit = Kit::start().await;
        let (org, project) = customer(&kit).await;
        let adjustments = Adjustments::new(kit.store.clone());
        let end = async |topup| adjustments.end_topup(&Actor::operator("test"), topup, is_credited, "a test").await;
        kit.call(project, 0, 2 * DOLLAR).await;
        let topup = queued(&kit).await[0];
        assert!(matches!(end(topup).await, Err(AdjustmentError::NotCharged(_))));
        kit.billing.charge_topup(topup).await.unwrap();
        kit.clock.advance(1);
        kit.call(project, 1, 1).await;
        assert_eq!(states(&kit).await, ["charged"]);
        let before = kit.balance(org).await;
        end(topup).await.unwrap();
        assert!(matches!(end(topup).await, Err(AdjustmentError::NotCharged(_))));
        let credit = if is_credited { AMOUNT } else { 0 };
        assert_eq!(kit.balance(org).await, before + credit);
        if is_credited {
            assert_eq!(states(&kit).await, ["credited"]);
        } else {
            // The next top-up is possible.
            kit.clock.advance(1);
            kit.call(project, 0, 0).await;
            assert_eq!(states(&kit).await, ["canceled", "pending"]);
        }
        // The event arrives after all, and the order is credited once.
        kit.deliver(&order(org, "draft_1", 500)).await;
        assert_eq!(kit.balance(org).await, before + AMOUNT);
        assert_eq!(states(&kit).await[0], "credited");
        kit.assert_consistent().await;
    }
}
