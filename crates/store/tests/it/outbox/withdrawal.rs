//! Withdrawn messages.

use serde_json::json;
use store::Connection;
use store::outbox::{self, DeliveryError};

use super::kit::{AFTER_LEASE, Kit, Receiver, TOPIC};

async fn withdraw(kit: &Kit, key: &str) -> u64 {
    kit.change(async |tx: &mut Connection| outbox::withdraw(tx, TOPIC, key).await).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn message_withdrawn_before_its_claim_is_not_delivered() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    for key in ["one", "one", "two"] {
        kit.enqueue(key).await;
    }
    kit.enqueue_to("webhook", "one").await;
    assert_eq!((withdraw(&kit, "one").await, withdraw(&kit, "one").await), (2, 0));
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    receiver.accept_next("two").await;
    kit.wait_for_rows(0, "store.outbox WHERE topic = 'mail'").await;
    assert_eq!(kit.recorded().await, ["two"]);
    kit.wait_for_rows(1, "store.outbox WHERE topic = 'webhook'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_deletes_only_old_messages_without_an_attempt() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.enqueue("claimed").await;
    let worker = kit.store.spawn_outbox_worker(receiver.clone());
    receiver.next().await.reject(DeliveryError::Transient("451 busy".to_owned()));
    kit.wait_for_rows(1, "store.outbox WHERE last_error IS NOT NULL").await;
    worker.stop().await;
    kit.enqueue("old").await;
    kit.enqueue_to("webhook", "other").await;
    kit.clock.advance(72 * 3600 - 1);
    kit.enqueue("new").await;
    kit.store.outbox_purge_unattempted(TOPIC).await.unwrap();
    kit.wait_for_rows(4, "store.outbox").await;
    kit.clock.advance(1);
    kit.store.outbox_purge_unattempted(TOPIC).await.unwrap();
    let rows = kit.database.rows("SELECT key FROM store.outbox ORDER BY key").await;
    assert_eq!(rows, ["claimed", "new", "other"].map(|key| json!({ "key": key })));
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_of_a_withdrawn_message_is_not_recorded() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let worker = kit.store.spawn_outbox_worker(receiver.clone());
    for (key, response) in [("one", Ok(())), ("two", Err(DeliveryError::Transient("busy".to_owned())))] {
        kit.enqueue(key).await;
        let arrival = receiver.next().await;
        assert_eq!(withdraw(&kit, key).await, 1);
        match response {
            Ok(()) => drop(arrival.accept()),
            Err(error) => arrival.reject(error),
        }
    }
    worker.stop().await;
    kit.clock.advance(AFTER_LEASE);
    assert_eq!((kit.recorded().await.len(), kit.database.number("SELECT count(*) FROM store.outbox").await), (0, 0));
}
