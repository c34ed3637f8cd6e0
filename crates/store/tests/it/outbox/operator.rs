//! Operator commands: list, retry and drop.

use std::collections::BTreeMap;

use kernel::OrgId;
use serde_json::json;
use store::outbox::{Counts, DeliveryError, Filter, QueuedMessage, Retry};
use uuid::Uuid;

use super::kit::{Kit, Receiver, TOPIC, actor};

async fn list(kit: &Kit, filter: Filter) -> Vec<QueuedMessage> {
    kit.store.outbox_list(&filter).await.unwrap()
}

/// Returns the audit events of operator commands.
async fn events(kit: &Kit) -> Vec<serde_json::Value> {
    let events = "SELECT event, target, data, org_id, credential FROM store.audit \
         WHERE event LIKE 'outbox.%' ORDER BY id";
    kit.database.rows(events).await
}

/// Inserts this many dead letters, which no worker can open.
async fn insert_dead_letters(kit: &Kit, topic: &str, count: u32) {
    let insert = format!(
        "INSERT INTO store.outbox (id, topic, key, payload, key_id, attempts, next_attempt_at, dead_lettered_at, created_at) \
         SELECT gen_random_uuid(), '{topic}', 'key-' || n, '', 'test', 1, now(), now(), now() \
         FROM generate_series(1, {count}) n"
    );
    kit.database.run(&insert).await;
}

/// Returns the number of dead letters of a topic.
async fn dead_letters(kit: &Kit, topic: &str) -> i64 {
    let count = format!("SELECT count(*) FROM store.outbox WHERE topic = '{topic}' AND dead_lettered_at IS NOT NULL");
    kit.database.number(&count).await
}

/// Rejects the next delivery permanently, and waits until there are `dead` dead letters.
async fn dead_letter(kit: &Kit, receiver: &Receiver, dead: i64) -> Uuid {
    let arrival = receiver.next().await;
    let id = arrival.message.id;
    arrival.reject(DeliveryError::Permanent("550 no such user".to_owned()));
    kit.wait_for_rows(dead, "store.outbox WHERE dead_lettered_at IS NOT NULL").await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_message_is_a_dead_letter_until_it_is_retried() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    kit.enqueue("one").await;
    let created_at = kit.store.clock_rng().now();
    receiver.next().await.reject(DeliveryError::Transient("451 busy".to_owned()));
    kit.wait_for_rows(1, "store.outbox WHERE failing_since IS NOT NULL").await;
    kit.advance(10).await;
    let id = dead_letter(&kit, &receiver, 1).await;
    let now = kit.store.clock_rng().now();
    let expected = QueuedMessage {
        id,
        topic: TOPIC.to_owned(),
        key: "one".to_owned(),
        attempts: 2,
        next_attempt_at: now.plus_seconds(60),
        last_error: Some("550 no such user".to_owned()),
        dead_lettered_at: Some(now),
        created_at,
    };
    assert_eq!(list(&kit, Filter { dead: true, ..Filter::default() }).await, [expected]);
    assert_eq!(kit.dead_lettered().await, ["one"]);
    // A retry starts a new retry period, however long the message has failed.
    kit.advance(80 * 3600).await;
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::One(id)).await.unwrap(), 1);
    receiver.next().await.reject(DeliveryError::Transient("451 busy".to_owned()));
    kit.wait_for_rows(1, "store.outbox WHERE dead_lettered_at IS NULL AND last_error = '451 busy'").await;
    // Not a dead letter: nothing to retry.
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::One(id)).await.unwrap(), 0);
    kit.advance(400).await;
    assert_eq!(receiver.accept_next("one").await.attempts, 4);
    kit.wait_until_empty().await;
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
async fn retry_all_retries_every_dead_letter() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    for (key, dead) in [("one", 1), ("two", 2)] {
        kit.enqueue(key).await;
        dead_letter(&kit, &receiver, dead).await;
    }
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 2);
    for _ in 0..2 {
        receiver.next().await.accept();
    }
    kit.wait_until_empty().await;
    assert_eq!(kit.recorded().await, ["one", "two"]);
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 0);
    assert_eq!(events(&kit).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_dead_letters_are_retried_in_batches() {
    let kit = Kit::start().await;
    insert_dead_letters(&kit, TOPIC, 2500).await;
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 2500);
    assert_eq!(dead_letters(&kit, TOPIC).await, 0);
    let events = events(&kit).await;
    let mut counts: Vec<_> = events.iter().map(|event| event["data"]["messages"].as_u64().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [500, 1000, 1000]);

    // A message that becomes a dead letter again is retried once.
    kit.database
        .run(
            "UPDATE store.outbox SET dead_lettered_at = now();
             CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql
                 AS 'BEGIN NEW.dead_lettered_at := now(); RETURN NEW; END';
             CREATE TRIGGER die BEFORE UPDATE ON store.outbox FOR EACH ROW EXECUTE FUNCTION die()",
        )
        .await;
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 2500);
    assert_eq!(dead_letters(&kit, TOPIC).await, 2500);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_topic_are_dropped() {
    let kit = Kit::start().await;
    insert_dead_letters(&kit, TOPIC, 1500).await;
    insert_dead_letters(&kit, "webhook", 1).await;
    kit.enqueue("one").await;
    assert_eq!(kit.store.outbox_drop_topic(&actor(), TOPIC, true).await.unwrap(), 1500);
    let left = list(&kit, Filter { topic: Some(TOPIC.to_owned()), dead: false }).await;
    assert_eq!(left.into_iter().map(|message| message.key).collect::<Vec<_>>(), ["one"]);
    assert_eq!(kit.store.outbox_drop_topic(&actor(), TOPIC, true).await.unwrap(), 0);
    assert_eq!(kit.store.outbox_drop_topic(&actor(), TOPIC, false).await.unwrap(), 1);
    assert_eq!(dead_letters(&kit, "webhook").await, 1);
    let events = events(&kit).await;
    let mut counts: Vec<_> = events.iter().map(|event| event["data"]["keys"].as_array().unwrap().len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 500, 1000]);
    let of_one = json!({
        "event": "outbox.drop",
        "target": TOPIC,
        "data": { "topic": TOPIC, "keys": ["one"] },
        "org_id": null,
        "credential": "operator",
    });
    assert!(events.contains(&of_one), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_filtered_and_dropped() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.enqueue_to("webhook", "hook").await;
    kit.enqueue("one").await;
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    let id = dead_letter(&kit, &receiver, 1).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn count_of_pending_messages_omits_messages_for_later() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let counts = async || kit.store.outbox_counts().await.unwrap();
    let pending = async || counts().await.get(TOPIC).copied().unwrap_or_default().pending;
    let (org, later): (OrgId, _) = (kit.store.clock_rng().id(), kit.store.clock_rng().now().plus_seconds(600));
    kit.change(async |tx| kit.store.enqueue_for_at(tx, TOPIC, org, "later", &json!({}), later).await).await.unwrap();
    assert_eq!(pending().await, 0);
    kit.enqueue("one").await;
    assert_eq!(pending().await, 1);
    // A message in delivery is pending, and so is one that waits for a retry.
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    let arrival = receiver.next().await;
    assert_eq!(pending().await, 1);
    arrival.reject(DeliveryError::Transient("451 busy".to_owned()));
    kit.wait_for_rows(1, "store.outbox WHERE last_error = '451 busy'").await;
    assert_eq!(pending().await, 1);

    kit.advance(600).await;
    assert_eq!(pending().await, 2);
    for dead in 1..=2 {
        dead_letter(&kit, &receiver, dead).await;
    }
    // Topics without a worker count, too.
    kit.enqueue_to("webhook", "hook").await;
    let expected = [(TOPIC, Counts { pending: 0, dead: 2 }), ("webhook", Counts { pending: 1, dead: 0 })];
    assert_eq!(counts().await, BTreeMap::from(expected.map(|(topic, counts)| (topic.to_owned(), counts))));
}
