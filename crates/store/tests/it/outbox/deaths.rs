//! Processes and connections that end at the worst moment.

use std::pin::{Pin, pin};
use std::sync::Arc;

use store::outbox::Pass;
use testkit::keys;

use super::kit::{Arrival, Kit, LEASE, Post, begun};

#[tokio::test(flavor = "multi_thread")]
async fn a_death_between_delivering_and_noting_costs_one_duplicate() {
    let (kit, post) = (Kit::start().await, Post::new());
    let dies = kit.store.deliver(post.clone());
    kit.enqueue("one").await;
    let arrived = post.next().await;
    // The effect is there, and nobody lives to note it.
    drop(dies);
    let first = arrived.message.clone();
    drop(arrived);
    let _lives = kit.other(keys()).deliver(post.clone());
    kit.enqueue("two").await;
    post.takes("two").await;
    kit.until(1, "noted").await;
    kit.advance(LEASE).await;
    let again = post.takes("one").await;
    kit.emptied().await;
    assert_eq!((first.id, first.created_at), (again.id, again.created_at));
    assert_eq!((first.attempts, again.attempts), (1, 2));
    assert_eq!(kit.noted().await, ["one", "two"]);
}

/// What the straggler has is taken by another once its lease is over; the straggler itself takes nothing any more.
async fn overtake(kit: &Kit, stopped: Pin<&mut impl Future<Output = ()>>, other: &Arc<Post>) -> (Pass, Arrival) {
    begun(stopped).await;
    kit.clock.advance(LEASE);
    let pass = kit.other(keys()).deliver(other.clone());
    (pass, other.next().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_straggler_whose_lease_is_over_notes_nothing() {
    let (kit, slow, quick) = (Kit::start().await, Post::new(), Post::new());
    let straggler = kit.store.deliver(slow.clone());
    kit.enqueue("one").await;
    let first = slow.next().await;
    let mut stopped = pin!(straggler.stop());
    let (_pass, second) = overtake(&kit, stopped.as_mut(), &quick).await;
    first.take();
    stopped.await;
    assert_eq!((kit.noted().await.len(), kit.row("one").await["attempts"].clone()), (0, 2.into()));
    second.take();
    kit.emptied().await;
    assert_eq!(kit.noted().await, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_straggler_that_failed_changes_nothing() {
    let (kit, slow, quick) = (Kit::start().await, Post::new(), Post::new());
    let straggler = kit.store.deliver(slow.clone());
    kit.enqueue("one").await;
    let first = slow.next().await;
    let mut stopped = pin!(straggler.stop());
    let (_pass, second) = overtake(&kit, stopped.as_mut(), &quick).await;
    first.refuse(store::outbox::Undelivered::Never("550 no such user".to_owned()));
    stopped.await;
    let row = kit.row("one").await;
    assert!(row["dead_at"].is_null() && row["last_error"].is_null(), "{row}");
    second.take();
    kit.emptied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_when_its_connections_are_cut() {
    let (kit, post) = (Kit::start().await, Post::new());
    let _pass = kit.store.deliver(post.clone());
    for round in ["first", "second", "third"] {
        kit.enqueue(round).await;
        let arrival = post.next().await;
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'test' AND datname = current_database()";
        assert!(!kit.database.rows(cut).await.is_empty(), "{round}");
        // Noted over a new connection, and not delivered again.
        assert_eq!(arrival.take().attempts, 1);
        kit.emptied().await;
    }
    assert_eq!(kit.noted().await, ["first", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_when_postgres_refuses_it_for_a_while() {
    let (kit, post) = (Kit::start().await, Post::new());
    let _pass = kit.store.deliver(post.clone());
    kit.enqueue("one").await;
    post.takes("one").await;
    kit.emptied().await;
    let away = "ALTER TABLE store.outbox RENAME TO gone; CREATE TABLE away AS SELECT clock_timestamp() AS since; \
         NOTIFY outbox";
    kit.database.run(away).await;
    let refused = "(SELECT FROM pg_stat_activity JOIN away ON query_start > since \
         WHERE query LIKE 'UPDATE store.outbox SET attempts%' AND state = 'idle' LIMIT 1) refused";
    kit.until(1, refused).await;
    kit.database.run("ALTER TABLE store.gone RENAME TO outbox").await;
    kit.enqueue("two").await;
    post.takes("two").await;
    kit.emptied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_delivered_and_cannot_be_removed_is_not_delivered_again() {
    let (kit, post) = (Kit::start().await, Post::new());
    let refuse =
        "CREATE TRIGGER stay BEFORE DELETE ON store.outbox FOR EACH ROW EXECUTE FUNCTION store.refuse_change()";
    kit.database.run(refuse).await;
    let _pass = kit.store.deliver(post.clone());
    kit.enqueue("one").await;
    post.takes("one").await;
    kit.until(1, "store.outbox WHERE dead_at IS NOT NULL").await;
    assert!(kit.noted().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_delivered_and_cannot_be_noted_is_not_delivered_again() {
    let (kit, post) = (Kit::start().await, Post::new());
    let _pass = kit.store.deliver(post.clone());
    // The table of the deliverer refuses this one.
    kit.enqueue("?").await;
    post.takes("?").await;
    kit.until(1, "store.outbox WHERE dead_at IS NOT NULL").await;
    let row = kit.row("?").await;
    assert_eq!(row["last_error"], "delivered, but this could not be noted: a retry sends it again");
    kit.advance(LEASE).await;
    kit.enqueue("two").await;
    post.takes("two").await;
}
