//! The plan that follows from subscriptions, and its cancellation.

use std::sync::Arc;
use std::time::Duration;

use billing::{BillingError, Cancellation, PaymentsError, RemoteSubscription, SubscriptionStatus};
use kernel::audit::Actor;
use kernel::{OrgId, Plan};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::kit::{Kit, modified_at, subscription};

#[tokio::test]
async fn statuses_decide_about_the_plan() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let statuses = [
        ("incomplete", "free", false, SubscriptionStatus::Canceled),
        ("trialing", "pro", true, SubscriptionStatus::Active),
        ("active", "pro", false, SubscriptionStatus::Active),
        ("past_due", "pro", false, SubscriptionStatus::PastDue),
        ("unpaid", "free", true, SubscriptionStatus::Canceled),
        ("active", "pro", true, SubscriptionStatus::Active),
        ("paused", "free", true, SubscriptionStatus::Canceled),
        ("past_due", "pro", true, SubscriptionStatus::PastDue),
        ("canceled", "free", true, SubscriptionStatus::Canceled),
        ("a new word", "free", false, SubscriptionStatus::Canceled),
    ];
    for (at, (status, plan, changes, shown)) in (0..).zip(statuses) {
        assert_eq!(kit.deliver(&subscription(org, "sub_1", status, at)).await, changes, "{status}");
        assert_eq!(kit.plan(org).await, plan, "{status}");
        let shown_status = kit.billing.status(org, plan.parse().unwrap()).await.unwrap();
        assert_eq!(
            (shown_status.status, shown_status.period_end.unwrap().to_string().as_str()),
            (Some(shown), "2026-02-01T00:00:00.123Z")
        );
    }
    assert_eq!(kit.events(org).await, ["billing.plan"; 6]);
    let audit = kit.database.rows("SELECT actor_id, credential, data FROM store.audit ORDER BY id LIMIT 1").await;
    let data = json!({ "from": "free", "to": "pro", "subscription": "sub_1", "status": "trialing" });
    assert_eq!(audit[0], json!({ "actor_id": null, "credential": "service", "data": data }));
}

#[tokio::test]
async fn other_events_and_products_are_only_recorded() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let active = subscription(org, "sub_1", "active", 5);
    for kind in ["subscription.created", "subscription.revoked", "customer.updated", "checkout.created"] {
        let mut event = active.clone();
        event["type"] = kind.into();
        assert!(!kit.deliver(&event).await, "{kind}");
    }
    let mut other = active.clone();
    other["data"]["product_id"] = "product-domain".into();
    assert!(!kit.deliver(&other).await);
    // None of these events changed the stored modification time.
    assert_eq!(kit.plan(org).await, "free");
    assert!(kit.deliver(&subscription(org, "sub_1", "active", 1)).await);
    assert_eq!((kit.count("webhooks").await, kit.count("unassigned_events").await), (6, 0));
    assert_eq!(kit.events(org).await, ["billing.plan"]);
}

/// An admin changes the product of the subscription in the portal.
#[tokio::test]
async fn change_to_another_product_ends_the_plan() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let other = |status: &str, modified| {
        let mut event = subscription(org, "sub_1", status, modified);
        event["data"]["product_id"] = "product-support".into();
        event
    };
    kit.deliver(&subscription(org, "sub_1", "active", 10)).await;
    assert!(!kit.deliver(&other("active", 9)).await);
    assert_eq!(kit.plan(org).await, "pro");
    assert!(kit.deliver(&other("active", 20)).await);
    assert_eq!(kit.plan(org).await, "free");
    let status = kit.billing.status(org, Plan::Free).await.unwrap();
    assert_eq!((status.status, status.cancel_at_period_end), (Some(SubscriptionStatus::Canceled), false));
    assert!(!kit.deliver(&subscription(org, "sub_1", "active", 15)).await);
    assert!(!kit.deliver(&other("past_due", 30)).await);
    assert_eq!(kit.plan(org).await, "free");
    // The admin changes it back.
    assert!(kit.deliver(&subscription(org, "sub_1", "active", 40)).await);
    assert_eq!(kit.plan(org).await, "pro");
    assert_eq!(kit.events(org).await, ["billing.plan"; 3]);
    assert_eq!(kit.count("unassigned_events").await, 0);
}

#[tokio::test]
async fn organization_is_found_by_its_id_only() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let unknown: OrgId = kit.store.clock_rng().id();
    let ids = [json!("acme"), json!(unknown.to_string()), json!(""), json!("org_x"), json!(org.as_uuid().to_string())];
    for id in &ids {
        let mut event = subscription(org, "sub_1", "active", 0);
        event["data"]["customer"]["external_id"] = id.clone();
        // The organization in the metadata is used only if there is no external id.
        event["data"]["metadata"]["org"] = org.to_string().into();
        assert!(!kit.deliver(&event).await, "{id}");
    }
    let mut nameless = subscription(org, "sub_1", "active", 0);
    nameless["data"]["customer"] = Value::Null;
    for _ in 0..2 {
        assert!(!kit.deliver_as("nameless", &nameless).await.unwrap());
    }
    assert_eq!(kit.count("unassigned_events").await, ids.len() as i64 + 1);
    let kept =
        kit.database.rows("SELECT organization, event FROM billing.unassigned_events ORDER BY organization").await;
    assert!(kept.contains(&json!({ "organization": "acme", "event": "subscription.updated" })), "{kept:?}");
    nameless["data"]["metadata"]["org"] = org.to_string().into();
    assert!(kit.deliver(&nameless).await);
    assert_eq!(kit.plan(org).await, "pro");
}

#[tokio::test]
async fn malformed_events_are_rejected_and_their_ids_stay_free() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    let valid = subscription(org, "sub_1", "active", 0);
    let mut malformed = vec![json!(null), json!([]), json!("x"), json!({ "type": 1 }), json!({ "data": {} })];
    malformed.extend(["", "a\u{0}b", &"x".repeat(201)].map(|kind| json!({ "type": kind, "data": {} })));
    for (field, values) in [
        ("id", vec![json!(null), json!(""), json!(1), json!("a\u{0}b"), json!("x".repeat(201))]),
        ("status", vec![json!(null), json!(["active"])]),
        ("product_id", vec![json!(null), json!(1)]),
        ("customer_id", vec![json!(null)]),
        ("cancel_at_period_end", vec![json!(null), json!("false")]),
        ("current_period_end", vec![json!("tomorrow"), json!(0), json!("2026-02-30T00:00:00Z")]),
        ("modified_at", vec![json!("2026-01-01"), json!(1), json!("2026-01-01T00:00:00")]),
        ("customer", vec![json!({ "external_id": 1 }), json!({ "external_id": "a\u{0}b" })]),
    ] {
        for value in values {
            let mut event = valid.clone();
            event["data"][field] = value;
            malformed.push(event);
        }
    }
    for event in &malformed {
        let error = kit.deliver_as("msg_same", event).await.unwrap_err();
        assert!(matches!(error, billing::WebhookError::Malformed(_)), "{event}: {error}");
    }
    for bytes in [&b""[..], b"{", b"\xff{}", b"{\"type\":\"a\xff\"}"] {
        let error = kit.deliver_bytes("msg_same", bytes).await.unwrap_err();
        assert!(matches!(error, billing::WebhookError::Malformed(_)), "{error}");
    }
    assert_eq!(kit.count("webhooks").await, 0);
    assert!(kit.deliver_as("msg_same", &valid).await.unwrap());
}

/// Returns the provider's response to a change of the schedule.
fn schedule_response(cancel: bool, modified: u32) -> Result<Option<RemoteSubscription>, PaymentsError> {
    Ok(Some(RemoteSubscription {
        status: "active".to_owned(),
        current_period_end: None,
        cancel_at_period_end: cancel,
        modified_at: Some(modified_at(modified).parse().unwrap()),
    }))
}

#[tokio::test]
async fn cancellation_is_shown_at_once_and_can_be_reverted() {
    let kit = Kit::start().await;
    let (org, actor) = (kit.org("acme").await, Actor::operator("test"));
    let cancel = async |cancel, plan| {
        kit.clock.advance(1);
        kit.billing.cancel(&actor, org, plan, Cancellation { cancel }).await
    };
    assert!(matches!(cancel(true, Plan::Free).await, Err(BillingError::NotPro)));
    kit.deliver(&subscription(org, "sub_1", "active", 10)).await;
    let respond = |response| kit.provider.state().responses.push_back(response);
    respond(schedule_response(true, 20));
    assert!(cancel(true, Plan::Pro).await.unwrap().cancel_at_period_end);
    // An event that the provider created before the cancellation does not revert it.
    kit.deliver(&subscription(org, "sub_1", "active", 15)).await;
    assert!(kit.billing.status(org, Plan::Pro).await.unwrap().cancel_at_period_end);
    respond(schedule_response(false, 30));
    assert!(!cancel(false, Plan::Pro).await.unwrap().cancel_at_period_end);
    // The subscription already had this state at the provider.
    respond(Ok(None));
    assert!(cancel(true, Plan::Pro).await.unwrap().cancel_at_period_end);
    respond(Ok(None));
    assert!(cancel(true, Plan::Pro).await.unwrap().cancel_at_period_end);
    respond(Err(PaymentsError::Unavailable("timed out".to_owned())));
    assert!(matches!(cancel(false, Plan::Pro).await, Err(BillingError::Unavailable(_))));
    assert_eq!(kit.events(org).await, ["billing.plan", "billing.cancel", "billing.resume", "billing.cancel"]);
    // After the end of the subscription there is nothing to cancel.
    kit.deliver(&subscription(org, "sub_1", "canceled", 40)).await;
    assert!(matches!(cancel(true, Plan::Free).await, Err(BillingError::NotPro)));
    assert!(!kit.billing.status(org, Plan::Free).await.unwrap().cancel_at_period_end);
}

/// Two admins completed two checkouts before the first webhook arrived.
#[tokio::test]
async fn cancellation_applies_to_every_live_subscription() {
    let kit = Kit::start().await;
    let (org, actor) = (kit.org("acme").await, Actor::operator("test"));
    let mut first = subscription(org, "sub_1", "active", 10);
    first["data"]["current_period_end"] = json!("2026-03-01T00:00:00Z");
    for event in [first, subscription(org, "sub_2", "active", 11), subscription(org, "sub_0", "canceled", 12)] {
        kit.deliver(&event).await;
    }
    let status = kit.billing.status(org, Plan::Pro).await.unwrap();
    assert_eq!(status.status, Some(SubscriptionStatus::Active));
    assert_eq!(status.period_end.unwrap().to_string(), "2026-03-01T00:00:00.000Z");
    let change = async |cancel, responses: [Result<Option<RemoteSubscription>, PaymentsError>; 2]| {
        kit.clock.advance(1);
        kit.provider.state().responses = responses.into();
        kit.billing.cancel(&actor, org, Plan::Pro, Cancellation { cancel }).await
    };
    // The provider fails for one of them. Its plan would continue.
    let unavailable = Err(PaymentsError::Unavailable("timed out".to_owned()));
    let failed = change(true, [unavailable, schedule_response(true, 20)]).await;
    assert!(matches!(failed, Err(BillingError::Unavailable(_))));
    assert!(!kit.billing.status(org, Plan::Pro).await.unwrap().cancel_at_period_end);
    // A repeated request completes the cancellation.
    assert!(change(true, [Ok(None), schedule_response(true, 21)]).await.unwrap().cancel_at_period_end);
    assert!(kit.billing.status(org, Plan::Pro).await.unwrap().cancel_at_period_end);
    let resumed = change(false, [schedule_response(false, 30), schedule_response(false, 31)]).await;
    assert!(!resumed.unwrap().cancel_at_period_end);
    let changes =
        [("sub_2", true), ("sub_1", true), ("sub_1", true), ("sub_2", true), ("sub_2", false), ("sub_1", false)];
    assert_eq!(kit.provider.state().changes, changes.map(|(id, cancel)| (id.to_owned(), cancel)));
    // Each operation has one audit event.
    assert_eq!(kit.events(org).await, ["billing.plan", "billing.cancel", "billing.cancel", "billing.resume"]);
    let audit = kit.database.rows("SELECT target, data FROM store.audit ORDER BY id DESC LIMIT 1").await;
    let data = json!({ "subscriptions": ["sub_2", "sub_1"] });
    assert_eq!(audit[0], json!({ "target": org.to_string(), "data": data }));
}

/// The last webhook of a subscription was lost, so it is live here, but the provider does not know it any more.
#[tokio::test]
async fn subscription_that_is_gone_at_the_provider_does_not_block_the_others() {
    let kit = Kit::start().await;
    let (org, actor) = (kit.org("acme").await, Actor::operator("test"));
    for event in [subscription(org, "sub_1", "active", 10), subscription(org, "sub_2", "active", 11)] {
        kit.deliver(&event).await;
    }
    let gone = || Err(PaymentsError::Gone("responded with status 404".to_owned()));
    let change = async |cancel, responses: [Result<Option<RemoteSubscription>, PaymentsError>; 2]| {
        kit.clock.advance(1);
        kit.provider.state().responses = responses.into();
        kit.billing.cancel(&actor, org, Plan::Pro, Cancellation { cancel }).await
    };
    let shown = async || kit.billing.status(org, Plan::Pro).await.unwrap().cancel_at_period_end;
    assert!(change(true, [schedule_response(true, 20), gone()]).await.unwrap().cancel_at_period_end);
    assert!(shown().await);
    assert!(!change(false, [schedule_response(false, 30), gone()]).await.unwrap().cancel_at_period_end);
    assert!(!shown().await);
    // A subscription that the provider did not respond about may still be renewed.
    let unavailable = Err(PaymentsError::Unavailable("timed out".to_owned()));
    assert!(change(true, [unavailable, gone()]).await.is_err());
    assert!(change(true, [gone(), gone()]).await.is_err());
    assert!(!shown().await);
    assert_eq!(kit.events(org).await, ["billing.plan", "billing.cancel", "billing.resume"]);
}

/// The subscription may still be renewed.
#[tokio::test]
async fn rejection_of_one_subscription_is_a_failure() {
    let kit = Kit::start().await;
    let (org, actor) = (kit.org("acme").await, Actor::operator("test"));
    for event in [subscription(org, "sub_1", "active", 10), subscription(org, "sub_2", "active", 11)] {
        kit.deliver(&event).await;
    }
    kit.clock.advance(1);
    let rejection = Err(PaymentsError::Rejected("responded with status 422".to_owned()));
    kit.provider.state().responses = [schedule_response(true, 20), rejection].into();
    let failed = kit.billing.cancel(&actor, org, Plan::Pro, Cancellation { cancel: true }).await;
    assert!(matches!(failed, Err(BillingError::Unavailable(PaymentsError::Rejected(_)))));
    assert!(!kit.billing.status(org, Plan::Pro).await.unwrap().cancel_at_period_end);
}

/// The provider rejects the cancellation of a schedule that does not exist.
#[tokio::test]
async fn resumption_without_a_schedule_changes_nothing() {
    let kit = Kit::start().await;
    let (org, actor) = (kit.org("acme").await, Actor::operator("test"));
    kit.deliver(&subscription(org, "sub_1", "active", 10)).await;
    let rejection = || Err(PaymentsError::Rejected("responded with status 400".to_owned()));
    let change = async |cancel, response| {
        kit.clock.advance(1);
        kit.provider.state().responses.push_back(response);
        kit.billing.cancel(&actor, org, Plan::Pro, Cancellation { cancel }).await
    };
    assert!(!change(false, rejection()).await.unwrap().cancel_at_period_end);
    // Other rejections are failures of the provider.
    assert!(matches!(change(true, rejection()).await, Err(BillingError::Unavailable(_))));
    assert!(change(true, schedule_response(true, 20)).await.unwrap().cancel_at_period_end);
    assert!(matches!(change(false, rejection()).await, Err(BillingError::Unavailable(_))));
    assert_eq!(kit.events(org).await, ["billing.plan", "billing.cancel"]);
}

/// The provider schedules the end, and its webhook arrives, but the response is lost.
#[tokio::test]
async fn cancellation_whose_response_is_lost_is_audited() {
    let kit = Kit::start().await;
    let (org, actor) = (kit.org("acme").await, Actor::operator("test"));
    kit.deliver(&subscription(org, "sub_1", "active", 10)).await;
    kit.clock.advance(1);
    let gate = Arc::new(Semaphore::new(0));
    kit.provider.state().gate = Some(gate.clone());
    kit.provider.state().responses.push_back(Err(PaymentsError::Unavailable("timed out".to_owned())));
    let webhook = async {
        while kit.provider.state().changes.is_empty() {
            tokio::task::yield_now().await;
        }
        let mut event = subscription(org, "sub_1", "active", 20);
        event["data"]["cancel_at_period_end"] = json!(true);
        kit.deliver(&event).await;
        gate.add_permits(1);
    };
    let cancellation = kit.billing.cancel(&actor, org, Plan::Pro, Cancellation { cancel: true });
    let (status, ()) = tokio::join!(cancellation, webhook);
    assert!(status.unwrap().cancel_at_period_end);
    assert_eq!(kit.events(org).await, ["billing.plan", "billing.cancel"]);
}

/// The provider executes one of two concurrent cancellations. Either of its responses may arrive first.
#[tokio::test]
async fn concurrent_cancellations_are_audited_once() {
    for responses in [[schedule_response(true, 20), Ok(None)], [Ok(None), schedule_response(true, 20)]] {
        let kit = Kit::start().await;
        let (org, actor) = (kit.org("acme").await, Actor::operator("test"));
        kit.deliver(&subscription(org, "sub_1", "active", 10)).await;
        kit.clock.advance(1);
        let gate = Arc::new(Semaphore::new(0));
        kit.provider.state().gate = Some(gate.clone());
        kit.provider.state().responses = responses.into();
        let respond = async {
            while kit.provider.state().changes.len() < 2 {
                tokio::task::yield_now().await;
            }
            gate.add_permits(1);
            let audited = async {
                while kit.events(org).await.len() < 2 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), audited).await.unwrap();
            gate.add_permits(1);
        };
        let cancel = || kit.billing.cancel(&actor, org, Plan::Pro, Cancellation { cancel: true });
        let (first, second, ()) = tokio::join!(cancel(), cancel(), respond);
        assert!(first.unwrap().cancel_at_period_end && second.unwrap().cancel_at_period_end);
        assert_eq!(kit.events(org).await, ["billing.plan", "billing.cancel"]);
    }
}
