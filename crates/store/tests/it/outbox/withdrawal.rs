//! Withdrawn messages.

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
