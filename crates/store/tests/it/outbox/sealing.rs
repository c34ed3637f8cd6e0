//! Sealed payloads, and missing keys.

use std::error::Error as _;
use std::sync::Arc;

use async_trait::async_trait;
use kernel::seal::{AssociatedData, Keys, Sealed};
use store::outbox::{DeliveryError, Message, OutboxHandler, Retry};
use store::{Connection, Error, Outcome};
use testkit::keys;

use super::kit::{Kit, Receiver, TOPIC, actor};

fn other_keys() -> Keys {
    Keys::parse("other:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_is_not_readable_in_its_row() {
    let kit = Kit::start().await;
    kit.enqueue("one").await;
    kit.wait_for_rows(1, "store.outbox WHERE position('hunter2'::bytea IN payload) = 0 AND key_id = 'test'").await;
    kit.wait_for_rows(0, "store.outbox o WHERE o::text LIKE '%hunter2%'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_that_cannot_be_opened_becomes_a_dead_letter_immediately() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    for key in ["one", "moved", "elsewhere"] {
        kit.enqueue(key).await;
    }
    let swap = "UPDATE store.outbox o SET payload = p.payload FROM store.outbox p \
         WHERE o.key = 'moved' AND p.key = 'one'; DELETE FROM store.outbox WHERE key = 'elsewhere'";
    kit.database.run(swap).await;
    let worker = kit.other(other_keys()).spawn_outbox_worker(receiver.clone());
    kit.wait_for_rows(2, "store.outbox WHERE dead_lettered_at IS NOT NULL").await;
    let reason = r#"cannot open the payload: sealed with the key "test", which is not configured"#;
    assert_eq!(kit.row("one").await["last_error"], reason);
    assert!(kit.dead_lettered().await.is_empty(), "no delivery was attempted");
    worker.stop().await;
    // Another worker has the key.
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 2);
    receiver.accept_next("one").await;
    kit.wait_for_rows(1, "store.outbox WHERE dead_lettered_at IS NOT NULL").await;
    assert_eq!(
        kit.row("moved").await["last_error"],
        "cannot open the payload: corrupt, or sealed with other associated data"
    );
}

/// A handler whose payloads are numbers.
struct NumberHandler;

#[async_trait]
impl OutboxHandler for NumberHandler {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    async fn deliver(&self, message: &Message) -> std::result::Result<(), DeliveryError> {
        message.parse::<u32>().map(drop)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_of_another_type_becomes_a_dead_letter_and_is_not_quoted() {
    let kit = Kit::start().await;
    let _worker = kit.store.spawn_outbox_worker(Arc::new(NumberHandler));
    kit.change(async |tx| kit.store.enqueue(tx, TOPIC, "number", &7).await).await.unwrap();
    kit.change(async |tx| kit.store.enqueue(tx, TOPIC, "text", &"hunter2").await).await.unwrap();
    kit.wait_for_rows(0, "store.outbox WHERE dead_lettered_at IS NULL").await;
    assert_eq!(kit.row("text").await["last_error"], "the payload does not have the topic's type");
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_without_keys_fails() {
    let kit = Kit::start().await;
    let keyless = kit.other(Keys::default());
    let work = async |tx: &mut Connection| {
        keyless.enqueue(tx, TOPIC, "one", &1).await?;
        Ok::<_, Error>(Outcome::Unchanged(()))
    };
    let error = keyless.transaction(&actor(), work).await.unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "no sealing key is configured");
}

#[tokio::test(flavor = "multi_thread")]
async fn value_opens_only_with_its_key_and_associated_data() {
    let kit = Kit::start().await;
    let data = AssociatedData { table: "t", row: "r", field: "f" };
    let sealed: Sealed = kit.store.seal(data, b"hunter2").unwrap();
    assert_eq!(kit.other(keys()).open(data, &sealed).unwrap(), b"hunter2");
    for (store, data, expected) in [
        (&kit.store, AssociatedData { row: "s", ..data }, "corrupt, or sealed with other associated data"),
        (&kit.other(other_keys()), data, r#"sealed with the key "test", which is not configured"#),
    ] {
        let error = store.open(data, &sealed).unwrap_err();
        assert!(matches!(error, Error::Inconsistent(_)), "{error:?}");
        assert_eq!(error.source().unwrap().to_string(), expected);
    }
}
