//! What operators see and do.

use serde_json::json;
use store::outbox::{Filter, Letter, Retry, Undelivered};
use uuid::Uuid;

use super::kit::{Kit, Post, TOPIC, actor};

async fn list(kit: &Kit, filter: Filter) -> Vec<Letter> {
    kit.store.outbox_list(&filter).await.unwrap()
}

/// The events beside those of the tests' own changes.
async fn events(kit: &Kit) -> Vec<serde_json::Value> {
    let events = "SELECT event, target, data, org_id, credential FROM store.audit \
         WHERE event LIKE 'outbox.%' ORDER BY id";
    kit.database.rows(events).await
}

/// Has the receiver refuse what arrives next for good.
async fn bury(kit: &Kit, post: &Post, dead: i64) -> Uuid {
    let arrival = post.next().await;
    let id = arrival.message.id;
    arrival.refuse(Undelivered::Never("550 no such user".to_owned()));
    kit.until(dead, "store.outbox WHERE dead_at IS NOT NULL").await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_dead_until_it_is_retried() {
    let (kit, post) = (Kit::start().await, Post::new());
    let _pass = kit.store.deliver(post.clone());
    kit.enqueue("one").await;
    let id = bury(&kit, &post, 1).await;
    let now = kit.store.world().now();
    let expected = Letter {
        id,
        topic: TOPIC.to_owned(),
        key: "one".to_owned(),
        attempts: 1,
        due_at: now.plus_seconds(60),
        last_error: Some("550 no such user".to_owned()),
        dead_at: Some(now),
        created_at: now,
    };
    assert_eq!(list(&kit, Filter { dead: true, ..Filter::default() }).await, [expected]);
    // However long ago: it is tried as long as a new one.
    kit.advance(80 * 3600).await;
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::One(id)).await.unwrap(), 1);
    post.next().await.refuse(Undelivered::Later("451 busy".to_owned()));
    kit.until(1, "store.outbox WHERE dead_at IS NULL AND last_error = '451 busy'").await;
    // It is not dead: nothing to retry.
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::One(id)).await.unwrap(), 0);
    kit.advance(400).await;
    assert_eq!(post.takes("one").await.attempts, 3);
    kit.emptied().await;
    let retried = json!({
        "event": "outbox.retry",
        "target": id,
        "data": { "messages": 1 },
        "org_id": null,
        "credential": "operator",
    });
    assert_eq!(events(&kit).await, [retried]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_dead_is_retried_at_once() {
    let (kit, post) = (Kit::start().await, Post::new());
    let _pass = kit.store.deliver(post.clone());
    for (key, dead) in [("one", 1), ("two", 2)] {
        kit.enqueue(key).await;
        bury(&kit, &post, dead).await;
    }
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 2);
    for _ in 0..2 {
        post.next().await.take();
    }
    kit.emptied().await;
    assert_eq!(kit.noted().await, ["one", "two"]);
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 0);
    assert_eq!(events(&kit).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_and_messages_dropped() {
    let (kit, post) = (Kit::start().await, Post::new());
    kit.enqueue_to("webhook", "hook").await;
    kit.enqueue("one").await;
    let _pass = kit.store.deliver(post.clone());
    let id = bury(&kit, &post, 1).await;
    let keys = async |filter| list(&kit, filter).await.into_iter().map(|it| it.key).collect::<Vec<_>>();
    assert_eq!(keys(Filter::default()).await.len(), 2);
    assert_eq!(keys(Filter { topic: Some("webhook".to_owned()), dead: false }).await, ["hook"]);
    assert_eq!(keys(Filter { topic: None, dead: true }).await, ["one"]);
    assert!(keys(Filter { topic: Some("webhook".to_owned()), dead: true }).await.is_empty());
    assert!(kit.store.outbox_drop(&actor(), id).await.unwrap());
    assert!(!kit.store.outbox_drop(&actor(), id).await.unwrap());
    assert_eq!(keys(Filter::default()).await, ["hook"]);
    let events = events(&kit).await;
    let [dropped] = events.as_slice() else { panic!("one event is expected: {events:?}") };
    assert_eq!((&dropped["event"], &dropped["target"]), (&json!("outbox.drop"), &json!(id)));
    assert_eq!(dropped["data"], json!({ "topic": TOPIC, "key": "one" }));
}
