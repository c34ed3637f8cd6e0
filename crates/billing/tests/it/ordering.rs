//! Events out of order. Of two events of a subscription, the one with the later modification time is valid.

use serde_json::Value;

use crate::kit::{Kit, subscription};

#[tokio::test]
async fn older_event_changes_nothing_and_equal_is_not_older() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    assert!(kit.deliver(&subscription(org, "sub_1", "active", 10)).await);
    assert!(!kit.deliver(&subscription(org, "sub_1", "canceled", 9)).await);
    assert_eq!(kit.plan(org).await, "pro");
    assert!(kit.deliver(&subscription(org, "sub_1", "canceled", 10)).await);
    assert_eq!(kit.plan(org).await, "free");
    // Instants are compared to the microsecond, not as texts.
    let at = |time: &str, status: &str| {
        let mut event = subscription(org, "sub_1", status, 0);
        event["data"]["modified_at"] = time.into();
        event
    };
    assert!(kit.deliver(&at("2026-01-01T03:00:00.000002+02:00", "active")).await);
    assert!(!kit.deliver(&at("2026-01-01T01:00:00.000001Z", "canceled")).await);
    assert!(!kit.deliver(&at("2025-12-31T19:00:00.000001-06:00", "canceled")).await);
    assert!(kit.deliver(&at("2026-01-01T01:00:00.000002Z", "canceled")).await);
    // If a subscription has no modification time, the time of the event replaces it.
    let mut undated = subscription(org, "sub_1", "active", 0);
    undated["data"]["modified_at"] = Value::Null;
    assert!(!kit.deliver(&undated).await);
    undated["timestamp"] = "2026-01-01T02:00:00Z".into();
    assert!(kit.deliver(&undated).await);
}

#[tokio::test]
async fn late_end_of_an_old_subscription_does_not_end_a_new_one() {
    let kit = Kit::start().await;
    let org = kit.org("acme").await;
    kit.deliver(&subscription(org, "sub_old", "active", 10)).await;
    kit.deliver(&subscription(org, "sub_new", "active", 20)).await;
    assert!(!kit.deliver(&subscription(org, "sub_old", "canceled", 30)).await);
    assert_eq!(kit.plan(org).await, "pro");
    assert!(kit.deliver(&subscription(org, "sub_new", "canceled", 25)).await);
    assert_eq!(kit.plan(org).await, "free");
}

/// A subscription belongs to one organization. An event that names another organization changes neither of them.
#[tokio::test]
async fn subscription_stays_with_its_organization() {
    let kit = Kit::start().await;
    let (acme, other) = (kit.org("acme").await, kit.org("other").await);
    kit.deliver(&subscription(acme, "sub_1", "active", 10)).await;
    assert!(!kit.deliver(&subscription(other, "sub_1", "canceled", 20)).await);
    assert_eq!((kit.plan(acme).await.as_str(), kit.plan(other).await.as_str()), ("pro", "free"));
}
