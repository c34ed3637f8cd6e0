//! Deliveries, retries and graceful shutdown.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use kernel::OrgId;
use serde_json::json;
use store::outbox::{DeliveryError, Message, OutboxHandler};
use store::{Connection, Error, Outcome};
use testkit::keys;

use super::kit::{Kit, Receiver, TOPIC, actor};

#[tokio::test(flavor = "multi_thread")]
async fn committed_message_is_delivered_once() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    kit.enqueue("one").await;
    let message = receiver.accept_next("one").await;
    assert_eq!((message.attempts, message.created_at), (1, kit.store.clock_rng().now()));
    assert_eq!(message.payload, json!({ "token": "hunter2" }));
    kit.wait_until_empty().await;
    assert_eq!(kit.recorded().await, ["one"]);
    assert!(!format!("{message:?}").contains("hunter2"), "{message:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_message_is_not_delivered() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    let work = async |tx: &mut Connection| {
        kit.store.enqueue(tx, TOPIC, "rolled back", &1).await?;
        Ok::<_, Error>(Outcome::Unchanged(()))
    };
    kit.store.transaction(&actor(), work).await.unwrap();
    kit.enqueue("committed").await;
    receiver.accept_next("committed").await;
    kit.wait_until_empty().await;
    assert_eq!(kit.recorded().await, ["committed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_error_is_retried_after_a_backoff() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    kit.enqueue("one").await;
    receiver.next().await.reject(DeliveryError::Transient("451 busy\r\n\0".to_owned()));
    kit.wait_for_rows(1, "store.outbox WHERE last_error = '451 busy   '").await;
    // Until the backoff is over, polls do not claim the message.
    kit.enqueue("two").await;
    receiver.accept_next("two").await;
    kit.wait_for_rows(1, "recorded").await;
    assert_eq!(kit.row("one").await["attempts"], 1);
    kit.advance(3).await;
    assert_eq!(receiver.accept_next("one").await.attempts, 2);
    kit.wait_until_empty().await;
    assert_eq!(kit.recorded().await, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_becomes_a_dead_letter_three_days_after_its_first_failure() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.enqueue("one").await;
    // No worker runs for a week, as during an outage of all servers.
    kit.clock.advance(7 * 24 * 3600);
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    for (error, wait) in [("451 first", 72 * 3600 - 1), ("451 second", 10)] {
        receiver.next().await.reject(DeliveryError::Transient(error.to_owned()));
        let retried = format!("store.outbox WHERE last_error = '{error}' AND dead_lettered_at IS NULL");
        kit.wait_for_rows(1, &retried).await;
        kit.advance(wait).await;
    }
    receiver.next().await.reject(DeliveryError::Transient("451 busy".to_owned()));
    kit.wait_for_rows(1, "store.outbox WHERE dead_lettered_at IS NOT NULL").await;
    assert_eq!(kit.row("one").await["last_error"], "retry period is over; last error: 451 busy");
    assert_eq!(kit.dead_lettered().await, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_workers_deliver_each_message_once() {
    let kit = Kit::start().await;
    let fill = async |tx: &mut Connection| {
        for n in 0..200 {
            kit.store.enqueue(tx, TOPIC, &format!("{n}"), &n).await?;
        }
        Ok(())
    };
    kit.change(fill).await.unwrap();
    let (receiver, other) = (Receiver::new(), kit.other(keys()));
    let _workers = [&kit.store, &kit.store, &other, &other].map(|store| store.spawn_outbox_worker(receiver.clone()));
    let mut arrived: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..200 {
        *arrived.entry(receiver.next().await.accept().key).or_default() += 1;
    }
    kit.wait_until_empty().await;
    assert_eq!((arrived.len(), arrived.values().max()), (200, Some(&1)));
    assert_eq!(kit.recorded().await.len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_delivered_without_a_wake_up() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.enqueue("one").await;
    kit.database.run("CREATE TABLE aside AS SELECT * FROM store.outbox; DELETE FROM store.outbox").await;
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    // Wait until `LISTEN` has started. The wake-ups by `LISTEN` and by the second message come before the insertion
    // below, which sends no wake-up.
    let listening = "pg_stat_activity WHERE query = 'LISTEN outbox' AND datname = current_database()";
    kit.wait_for_rows(1, listening).await;
    kit.enqueue("two").await;
    receiver.accept_next("two").await;
    kit.wait_until_empty().await;
    kit.database.run("INSERT INTO store.outbox SELECT * FROM aside").await;
    receiver.accept_next("one").await;
    kit.wait_until_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_receiver_does_not_delay_other_topics() {
    let (kit, hanging, mail) = (Kit::start().await, Receiver::for_topic("webhook"), Receiver::new());
    let _workers = [kit.store.spawn_outbox_worker(hanging.clone()), kit.store.spawn_outbox_worker(mail.clone())];
    let mut held = Vec::new();
    for n in 0..8 {
        kit.enqueue_to("webhook", &format!("hangs {n}")).await;
        held.push(hanging.next().await);
    }
    kit.enqueue_to("webhook", "waits").await;
    for key in ["one", "two"] {
        kit.enqueue(key).await;
        mail.accept_next(key).await;
    }
    kit.wait_for_rows(2, "recorded").await;
    // A free slot is used immediately.
    held.remove(3).accept();
    hanging.accept_next("waits").await;
    kit.wait_for_rows(4, "recorded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn organizations_take_turns() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let [busy, other, third]: [OrgId; 3] = std::array::from_fn(|_| kit.store.clock_rng().id());
    let enqueue = async |org: OrgId, keys: Vec<String>| {
        let payload = json!({});
        let enqueue = async |tx: &mut Connection| {
            for key in &keys {
                kit.store.enqueue_for(tx, TOPIC, org, key, &payload).await?;
            }
            Ok(())
        };
        kit.change(enqueue).await.unwrap();
    };
    enqueue(busy, (0..100).map(|n| format!("busy {n}")).collect()).await;
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(receiver.next().await);
    }
    kit.clock.advance(1);
    // The messages of the others are younger than all that still wait.
    for org in [other, third] {
        let name = if org == other { "other" } else { "third" };
        enqueue(org, (0..3).map(|n| format!("{name} {n}")).collect()).await;
    }
    let mut arrived = Vec::new();
    for _ in 0..6 {
        held.remove(0).accept();
        let arrival = receiver.next().await;
        arrived.push(arrival.message.key.split(' ').next().unwrap().to_owned());
        held.push(arrival);
    }
    // The busy organization keeps its share of the slots when the others have as many.
    assert_eq!(arrived[..4].iter().filter(|name| *name != "busy").count(), 4, "{arrived:?}");
    for name in ["other", "third"] {
        assert!(arrived.iter().filter(|it| *it == name).count() >= 2, "{arrived:?}");
    }
    for arrival in held {
        arrival.accept();
    }
    for _ in 0..106 - 14 {
        receiver.next().await.accept();
    }
    kit.wait_until_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_deliveries_in_progress() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let worker = kit.store.spawn_outbox_worker(receiver.clone());
    kit.enqueue("one").await;
    let arrival = receiver.next().await;
    let ((), _) = tokio::join!(worker.stop(), async { arrival.accept() });
    assert_eq!(kit.recorded().await, ["one"]);
    // The stopped worker claims no more messages.
    kit.enqueue("two").await;
    assert_eq!(kit.row("two").await["attempts"], 0);
}

/// A handler that panics.
struct PanickingHandler;

#[async_trait]
impl OutboxHandler for PanickingHandler {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    async fn deliver(&self, message: &Message) -> std::result::Result<(), DeliveryError> {
        assert_eq!(message.key, "something else", "deliberate panic");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_handler_is_retried() {
    let kit = Kit::start().await;
    let _worker = kit.store.spawn_outbox_worker(Arc::new(PanickingHandler));
    kit.enqueue("one").await;
    kit.wait_for_rows(1, "store.outbox WHERE last_error IS NOT NULL AND attempts = 1 AND dead_lettered_at IS NULL")
        .await;
    kit.enqueue("something else").await;
    kit.wait_for_rows(1, "store.outbox").await;
    assert_eq!(kit.row("one").await["last_error"], "internal error; see the log of the service");
}
