//! Messages on their way, and what receivers answer.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use kernel::Time;
use serde_json::json;
use store::outbox::{Deliver, Message, Undelivered};
use store::{Connection, Error, Outcome, Result};
use testkit::keys;

use super::kit::{Kit, Post, TOPIC, actor, begun};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_is_delivered_once() {
    let (kit, post) = (Kit::start().await, Post::new());
    let _pass = kit.store.deliver(post.clone());
    kit.enqueue("one").await;
    let message = post.takes("one").await;
    assert_eq!((message.attempts, message.created_at), (1, kit.store.world().now()));
    assert_eq!(message.payload, json!({ "token": "hunter2" }));
    kit.emptied().await;
    assert_eq!(kit.noted().await, ["one"]);
    assert!(!format!("{message:?}").contains("hunter2"), "{message:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_rolled_back_is_not() {
    let (kit, post) = (Kit::start().await, Post::new());
    let _pass = kit.store.deliver(post.clone());
    let work = async |tx: &mut Connection| {
        kit.store.enqueue(tx, TOPIC, "rolled back", &1).await?;
        Ok::<_, Error>(Outcome::Unchanged(()))
    };
    kit.store.transaction(&actor(), work).await.unwrap();
    kit.enqueue("committed").await;
    post.takes("committed").await;
    kit.emptied().await;
    assert_eq!(kit.noted().await, ["committed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_off_comes_again_after_a_while() {
    let (kit, post) = (Kit::start().await, Post::new());
    let _pass = kit.store.deliver(post.clone());
    kit.enqueue("one").await;
    post.next().await.refuse(Undelivered::Later("451 busy\r\n\0".to_owned()));
    kit.until(1, "store.outbox WHERE last_error = '451 busy   '").await;
    // Whoever looks now leaves it where it is.
    kit.enqueue("two").await;
    post.takes("two").await;
    kit.until(1, "noted").await;
    assert_eq!(kit.row("one").await["attempts"], 1);
    kit.advance(3).await;
    assert_eq!(post.takes("one").await.attempts, 2);
    kit.emptied().await;
    assert_eq!(kit.noted().await, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_off_for_three_days_is_given_up() {
    let (kit, post) = (Kit::start().await, Post::new());
    let pass = kit.store.deliver(post.clone());
    kit.enqueue("one").await;
    let arrival = post.next().await;
    // So long after, nobody but the attempt that is under way is to take it.
    let mut stopped = pin!(pass.stop());
    begun(stopped.as_mut()).await;
    kit.clock.advance(72 * 3600);
    arrival.refuse(Undelivered::Later("451 busy".to_owned()));
    stopped.await;
    assert!(!kit.row("one").await["dead_at"].is_null());
    assert_eq!(kit.row("one").await["last_error"], "given up; the last attempt: 451 busy");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_passes_deliver_each_message_once() {
    let kit = Kit::start().await;
    let fill = async |tx: &mut Connection| {
        for n in 0..200 {
            kit.store.enqueue(tx, TOPIC, &format!("{n}"), &n).await?;
        }
        Ok(())
    };
    kit.change(fill).await.unwrap();
    let (post, other) = (Post::new(), kit.other(keys()));
    let _passes = [&kit.store, &kit.store, &other, &other].map(|store| store.deliver(post.clone()));
    let mut arrived: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..200 {
        *arrived.entry(post.next().await.take().key).or_default() += 1;
    }
    kit.emptied().await;
    assert_eq!((arrived.len(), arrived.values().max()), (200, Some(&1)));
    assert_eq!(kit.noted().await.len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_wake_up_it_is_found_all_the_same() {
    let (kit, post) = (Kit::start().await, Post::new());
    kit.enqueue("one").await;
    kit.database.run("CREATE TABLE aside AS SELECT * FROM store.outbox; DELETE FROM store.outbox").await;
    let _pass = kit.store.deliver(post.clone());
    // Listening wakes it once, and so does what it is woken for.
    let listening = "pg_stat_activity WHERE query = 'LISTEN outbox' AND datname = current_database()";
    kit.until(1, listening).await;
    kit.enqueue("two").await;
    post.takes("two").await;
    kit.emptied().await;
    kit.database.run("INSERT INTO store.outbox SELECT * FROM aside").await;
    post.takes("one").await;
    kit.emptied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_holds_nobody_else_up() {
    let (kit, hanging, mail) = (Kit::start().await, Post::of("webhook"), Post::new());
    let _passes = [kit.store.deliver(hanging.clone()), kit.store.deliver(mail.clone())];
    let mut held = Vec::new();
    for n in 0..8 {
        kit.enqueue_to("webhook", &format!("hangs {n}")).await;
        held.push(hanging.next().await);
    }
    kit.enqueue_to("webhook", "waits").await;
    for key in ["one", "two"] {
        kit.enqueue(key).await;
        mail.takes(key).await;
    }
    kit.until(2, "noted").await;
    // Room for one more is taken as soon as there is some.
    held.remove(3).take();
    hanging.takes("waits").await;
    kit.until(4, "noted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_what_is_being_delivered() {
    let (kit, post) = (Kit::start().await, Post::new());
    let pass = kit.store.deliver(post.clone());
    kit.enqueue("one").await;
    let arrival = post.next().await;
    let ((), _) = tokio::join!(pass.stop(), async { arrival.take() });
    assert_eq!(kit.noted().await, ["one"]);
    // Nobody takes anything any more.
    kit.enqueue("two").await;
    assert_eq!(kit.row("two").await["attempts"], 0);
}

/// Falls over whatever it is given.
struct Broken;

#[async_trait]
impl Deliver for Broken {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    async fn deliver(&self, message: &Message) -> std::result::Result<(), Undelivered> {
        assert_eq!(message.key, "something else", "as the test wants it");
        Ok(())
    }

    async fn delivered(&self, _: &mut Connection, _: &Message, _: Time) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deliverer_that_panics_is_tried_again_later() {
    let kit = Kit::start().await;
    let _pass = kit.store.deliver(Arc::new(Broken));
    kit.enqueue("one").await;
    kit.until(1, "store.outbox WHERE last_error IS NOT NULL AND attempts = 1 AND dead_at IS NULL").await;
    kit.enqueue("something else").await;
    kit.until(1, "store.outbox").await;
    assert_eq!(kit.row("one").await["last_error"], "a fault of the service; its log tells more");
}
