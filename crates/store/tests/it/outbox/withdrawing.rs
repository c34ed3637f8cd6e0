//! Messages that are not wanted any more.

use store::Connection;
use store::outbox::{self, Undelivered};

use super::kit::{Kit, LEASE, Post, TOPIC};

async fn withdraw(kit: &Kit, key: &str) -> u64 {
    kit.change(async |tx: &mut Connection| outbox::withdraw(tx, TOPIC, key).await).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn before_it_was_taken_it_is_never_delivered() {
    let (kit, post) = (Kit::start().await, Post::new());
    for key in ["one", "one", "two"] {
        kit.enqueue(key).await;
    }
    kit.enqueue_to("webhook", "one").await;
    assert_eq!((withdraw(&kit, "one").await, withdraw(&kit, "one").await), (2, 0));
    let _pass = kit.store.deliver(post.clone());
    post.takes("two").await;
    kit.until(0, "store.outbox WHERE topic = 'mail'").await;
    assert_eq!(kit.noted().await, ["two"]);
    kit.until(1, "store.outbox WHERE topic = 'webhook'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_is_delivered_nothing_is_noted_of_it() {
    let (kit, post) = (Kit::start().await, Post::new());
    let pass = kit.store.deliver(post.clone());
    for (key, answer) in [("one", Ok(())), ("two", Err(Undelivered::Later("busy".to_owned())))] {
        kit.enqueue(key).await;
        let arrival = post.next().await;
        assert_eq!(withdraw(&kit, key).await, 1);
        match answer {
            Ok(()) => drop(arrival.take()),
            Err(why) => arrival.refuse(why),
        }
    }
    pass.stop().await;
    kit.clock.advance(LEASE);
    assert_eq!((kit.noted().await.len(), kit.database.number("SELECT count(*) FROM store.outbox").await), (0, 0));
}
