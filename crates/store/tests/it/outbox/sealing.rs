//! What a copy of the database tells, and keys that are missing.

use std::error::Error as _;
use std::sync::Arc;

use async_trait::async_trait;
use kernel::Time;
use kernel::seal::{Keys, Place, Sealed};
use store::outbox::{Deliver, Message, Retry, Undelivered};
use store::{Connection, Error, Outcome, Result};
use testkit::keys;

use super::kit::{Kit, Post, TOPIC, actor};

fn other_keys() -> Keys {
    Keys::parse("other:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_not_readable_in_its_row() {
    let kit = Kit::start().await;
    kit.enqueue("one").await;
    kit.until(1, "store.outbox WHERE position('hunter2'::bytea IN payload) = 0 AND key_id = 'test'").await;
    kit.until(0, "store.outbox o WHERE o::text LIKE '%hunter2%'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_does_not_open_is_dead_at_once() {
    let (kit, post) = (Kit::start().await, Post::new());
    for key in ["one", "moved", "elsewhere"] {
        kit.enqueue(key).await;
    }
    let swap = "UPDATE store.outbox o SET payload = p.payload FROM store.outbox p \
         WHERE o.key = 'moved' AND p.key = 'one'; DELETE FROM store.outbox WHERE key = 'elsewhere'";
    kit.database.run(swap).await;
    let pass = kit.other(other_keys()).deliver(post.clone());
    kit.until(2, "store.outbox WHERE dead_at IS NOT NULL").await;
    let reason = r#"the payload: sealed under the key "test", which is not configured"#;
    assert_eq!(kit.row("one").await["last_error"], reason);
    pass.stop().await;
    // By one who has the key.
    let _pass = kit.store.deliver(post.clone());
    assert_eq!(kit.store.outbox_retry(&actor(), Retry::All).await.unwrap(), 2);
    post.takes("one").await;
    kit.until(1, "store.outbox WHERE dead_at IS NOT NULL").await;
    assert_eq!(kit.row("moved").await["last_error"], "the payload: does not open in this place");
}

/// Takes numbers alone.
struct Counting;

#[async_trait]
impl Deliver for Counting {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    async fn deliver(&self, message: &Message) -> std::result::Result<(), Undelivered> {
        message.parse::<u32>().map(drop)
    }

    async fn delivered(&self, _: &mut Connection, _: &Message, _: Time) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_of_another_type_is_dead_and_not_quoted() {
    let kit = Kit::start().await;
    let _pass = kit.store.deliver(Arc::new(Counting));
    kit.change(async |tx| kit.store.enqueue(tx, TOPIC, "number", &7).await).await.unwrap();
    kit.change(async |tx| kit.store.enqueue(tx, TOPIC, "text", &"hunter2").await).await.unwrap();
    kit.until(0, "store.outbox WHERE dead_at IS NULL").await;
    assert_eq!(kit.row("text").await["last_error"], "the payload is not of the topic's type");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_nothing_is_sealed() {
    let kit = Kit::start().await;
    let keyless = kit.other(Keys::default());
    let work = async |tx: &mut Connection| {
        keyless.enqueue(tx, TOPIC, "one", &1).await?;
        Ok::<_, Error>(Outcome::Unchanged(()))
    };
    let refused = keyless.transaction(&actor(), work).await.unwrap_err();
    assert_eq!(refused.source().unwrap().to_string(), "no sealing key is configured");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_opens_what_it_sealed_in_its_place_alone() {
    let kit = Kit::start().await;
    let place = Place { table: "t", row: "r", field: "f" };
    let sealed: Sealed = kit.store.seal(place, b"hunter2").unwrap();
    assert_eq!(kit.other(keys()).open(place, &sealed).unwrap(), b"hunter2");
    for (store, place, expected) in [
        (&kit.store, Place { row: "s", ..place }, "does not open in this place"),
        (&kit.other(other_keys()), place, r#"sealed under the key "test", which is not configured"#),
    ] {
        let error = store.open(place, &sealed).unwrap_err();
        assert!(matches!(error, Error::Inconsistent(_)), "{error:?}");
        assert_eq!(error.source().unwrap().to_string(), expected);
    }
}
