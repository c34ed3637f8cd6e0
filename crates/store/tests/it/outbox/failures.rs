//! Crashed workers, expired leases, lost connections and wrong clocks.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use diesel_async::RunQueryDsl as _;
use kernel::Time;
use store::outbox::{DeliveryError, Message, OutboxHandler, OutboxWorker};
use store::{Config, Connection, Error, Result, Store};
use testkit::{TestClock, keys, store_config};
use tokio::sync::Notify;

use super::kit::{AFTER_LEASE, Arrival, Kit, Receiver, TOPIC, poll_once};

#[tokio::test(flavor = "multi_thread")]
async fn crash_before_recording_causes_one_duplicate() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let crashing = kit.store.spawn_outbox_worker(receiver.clone());
    kit.enqueue("one").await;
    let arrived = receiver.next().await;
    // The message is delivered, but the delivery is not recorded.
    drop(crashing);
    let first = arrived.message.clone();
    drop(arrived);
    let _surviving = kit.other(keys()).spawn_outbox_worker(receiver.clone());
    kit.enqueue("two").await;
    receiver.accept_next("two").await;
    kit.wait_for_rows(1, "recorded").await;
    kit.advance(AFTER_LEASE).await;
    let second = receiver.accept_next("one").await;
    kit.wait_until_empty().await;
    assert_eq!((first.id, first.created_at), (second.id, second.created_at));
    assert_eq!((first.attempts, second.attempts), (1, 2));
    assert_eq!(kit.recorded().await, ["one", "two"]);
}

/// A handler whose deliveries may take ten minutes.
struct SlowHandler {
    receiver: Arc<Receiver>,
    /// Notified after each delivery, before it is recorded.
    returned: Notify,
}

impl SlowHandler {
    fn new(receiver: &Arc<Receiver>) -> Arc<Self> {
        Arc::new(Self { receiver: Arc::clone(receiver), returned: Notify::new() })
    }
}

#[async_trait]
impl OutboxHandler for SlowHandler {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    async fn deliver(&self, message: &Message) -> std::result::Result<(), DeliveryError> {
        let delivered = self.receiver.deliver(message).await;
        self.returned.notify_one();
        delivered
    }

    async fn on_delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> Result<()> {
        self.receiver.on_delivered(tx, message, at).await
    }
}

async fn advance_timers(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn long_delivery_keeps_its_lease() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(SlowHandler::new(&receiver));
    kit.enqueue("one").await;
    let first = receiver.next().await;
    kit.clock.advance(50);
    advance_timers(Duration::from_secs(50)).await;
    kit.wait_for_rows(1, "store.outbox WHERE next_attempt_at > created_at + interval '90 s'").await;
    // The lease of the claim is over. A worker that claims the next message would also claim this one.
    kit.clock.advance(50);
    kit.enqueue("two").await;
    receiver.accept_next("two").await;
    kit.wait_for_rows(1, "recorded").await;
    assert_eq!(kit.row("one").await["attempts"], 1);
    first.accept();
    kit.wait_until_empty().await;
    assert_eq!(kit.recorded().await, ["one", "two"]);
}

/// A renewal that waits for a lock fails after a second. On a slow machine, a round may be too slow to see it wait.
#[tokio::test]
async fn renewal_that_waits_does_not_delay_the_delivery() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let handler = SlowHandler::new(&receiver);
    let _worker = kit.store.spawn_outbox_worker(handler.clone());
    let is_waiting = async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'UPDATE%'";
        kit.database.number(waiting).await == 1
    };
    for round in ["first", "second", "third"] {
        kit.enqueue(round).await;
        let arrival = receiver.next().await;
        let lock_row = async |tx: &mut Connection| {
            diesel::sql_query("SELECT 1 FROM store.outbox FOR UPDATE").execute(tx).await?;
            advance_timers(Duration::from_secs(21)).await;
            for _ in 0..50 {
                if is_waiting().await {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            arrival.accept();
            handler.returned.notified().await;
            Ok::<_, Error>(is_waiting().await)
        };
        let still_waits = kit.store.transaction_unaudited(lock_row).await.unwrap();
        kit.wait_until_empty().await;
        if still_waits {
            return;
        }
    }
    panic!("each delivery ended after its renewal");
}

/// Lets the lease of a stopping worker expire during its delivery of the message `one`, and another worker claim the
/// message. Then `respond` ends the first delivery. Returns the other worker and its delivery.
async fn respond_after_lease(kit: &Kit, respond: impl FnOnce(Arrival)) -> (OutboxWorker, Arrival) {
    let (slow, quick) = (Receiver::new(), Receiver::new());
    let stale = kit.store.spawn_outbox_worker(slow.clone());
    kit.enqueue("one").await;
    let first = slow.next().await;
    let mut stopping = pin!(stale.stop());
    poll_once(stopping.as_mut()).await;
    kit.clock.advance(AFTER_LEASE);
    let worker = kit.other(keys()).spawn_outbox_worker(quick.clone());
    let second = quick.next().await;
    respond(first);
    stopping.await;
    (worker, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_lease_cannot_record_delivery() {
    let kit = Kit::start().await;
    let (_worker, second) = respond_after_lease(&kit, |first| drop(first.accept())).await;
    assert_eq!((kit.recorded().await.len(), kit.row("one").await["attempts"].clone()), (0, 2.into()));
    second.accept();
    kit.wait_until_empty().await;
    assert_eq!(kit.recorded().await, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_lease_cannot_record_a_failure() {
    let kit = Kit::start().await;
    let rejection = DeliveryError::Permanent("550 no such user".to_owned());
    let (_worker, second) = respond_after_lease(&kit, |first| first.reject(rejection)).await;
    let row = kit.row("one").await;
    assert!(row["dead_lettered_at"].is_null() && row["last_error"].is_null(), "{row}");
    assert!(kit.dead_lettered().await.is_empty());
    second.accept();
    kit.wait_until_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_survives_lost_connections() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    for round in ["first", "second", "third"] {
        kit.enqueue(round).await;
        let arrival = receiver.next().await;
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'test' AND datname = current_database()";
        assert!(!kit.database.rows(cut).await.is_empty(), "{round}");
        // Recorded over a new connection, without a second delivery.
        assert_eq!(arrival.accept().attempts, 1);
        kit.wait_until_empty().await;
    }
    assert_eq!(kit.recorded().await, ["first", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_survives_failing_statements() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    kit.enqueue("one").await;
    receiver.accept_next("one").await;
    kit.wait_until_empty().await;
    let away = "ALTER TABLE store.outbox RENAME TO gone; CREATE TABLE away AS SELECT clock_timestamp() AS since; \
         NOTIFY outbox";
    kit.database.run(away).await;
    let refused = "(SELECT FROM pg_stat_activity JOIN away ON query_start > since \
         WHERE query LIKE 'WITH RECURSIVE newest%' AND state = 'idle' LIMIT 1) refused";
    kit.wait_for_rows(1, refused).await;
    kit.database.run("ALTER TABLE store.gone RENAME TO outbox").await;
    kit.enqueue("two").await;
    receiver.accept_next("two").await;
    kit.wait_until_empty().await;
}

async fn enqueue(store: &Store, key: &str) {
    let work = async |tx: &mut Connection| store.enqueue(tx, TOPIC, key, &1).await;
    store.transaction_unaudited(work).await.unwrap();
}

/// Returns the store of a process with this clock.
fn open(kit: &Kit, clock: &TestClock, name: &str) -> Store {
    let (system_clock, application_name) = (clock.clock_rng(), name.to_owned());
    let config = Config { system_clock, application_name, ..store_config(kit.database.url()) };
    Store::new(&config, clock.clock_rng()).unwrap()
}

#[tokio::test]
async fn clock_that_becomes_wrong_during_a_delivery_does_not_affect_the_message() {
    let (kit, receiver, clock) = (Kit::start().await, Receiver::new(), TestClock::running());
    let store = open(&kit, &clock, "test");
    enqueue(&store, "one").await;
    kit.database.run("UPDATE store.outbox SET failing_since = now() - interval '71 hours'").await;
    let _worker = store.spawn_outbox_worker(SlowHandler::new(&receiver));
    let arrival = receiver.next().await;
    clock.advance(2 * 24 * 3600);
    kit.database.run("UPDATE store.outbox SET next_attempt_at = now() + interval '5 s'").await;
    advance_timers(Duration::from_secs(21)).await;
    // The renewed lease.
    let leased = "store.outbox WHERE next_attempt_at BETWEEN now() + interval '10 s' AND now() + interval '1 hour'";
    kit.wait_for_rows(1, leased).await;
    arrival.reject(DeliveryError::Transient("451 busy".to_owned()));
    let retried = "store.outbox WHERE last_error = '451 busy' AND dead_lettered_at IS NULL \
         AND next_attempt_at < now() + interval '1 hour'";
    kit.wait_for_rows(1, retried).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_does_not_depend_on_the_clock_of_its_process() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    for (key, ahead) in [("behind", -90), ("ahead", 90)] {
        let store = open(&kit, &TestClock::running().ahead(ahead), key);
        let worker = store.spawn_outbox_worker(receiver.clone());
        enqueue(&store, key).await;
        let arrival = receiver.next().await;
        let leased = "store.outbox WHERE next_attempt_at BETWEEN now() AND now() + interval '70 s'";
        assert_eq!(kit.database.number(&format!("SELECT count(*) FROM {leased}")).await, 1, "{key}");
        arrival.accept();
        kit.wait_until_empty().await;
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_process_with_a_wrong_clock_are_delivered_by_another() {
    let (kit, paused, other) = (Kit::start().await, Receiver::new(), Receiver::new());
    let (wrong, right) = (TestClock::running(), TestClock::running());
    wrong.advance(3600);
    let store = open(&kit, &wrong, "paused");
    let _worker = store.spawn_outbox_worker(paused.clone());
    // The worker has read the clock of Postgres, before it would have claimed messages.
    let has_read = "application_name = 'paused' AND query LIKE '%clock_timestamp()%' AND state = 'idle'";
    kit.wait_for_rows(1, &format!("pg_stat_activity WHERE {has_read}")).await;
    enqueue(&store, "one").await;
    let worker = open(&kit, &right, "other").spawn_outbox_worker(other.clone());
    other.accept_next("one").await;
    kit.wait_until_empty().await;
    worker.stop().await;
    wrong.advance(-3600);
    enqueue(&store, "two").await;
    paused.accept_next("two").await;
    kit.wait_until_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delivered_message_that_cannot_be_removed_becomes_a_dead_letter() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let refuse =
        "CREATE TRIGGER stay BEFORE DELETE ON store.outbox FOR EACH ROW EXECUTE FUNCTION store.reject_change()";
    kit.database.run(refuse).await;
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    kit.enqueue("one").await;
    receiver.accept_next("one").await;
    kit.wait_for_rows(1, "store.outbox WHERE dead_lettered_at IS NOT NULL").await;
    assert!(kit.recorded().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn delivered_message_that_cannot_be_recorded_becomes_a_dead_letter() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    // The handler's table rejects this key.
    kit.enqueue("?").await;
    receiver.accept_next("?").await;
    kit.wait_for_rows(1, "store.outbox WHERE dead_lettered_at IS NOT NULL").await;
    let row = kit.row("?").await;
    assert_eq!(row["last_error"], "delivered, but failed to record the delivery; a retry delivers it again");
    assert!(kit.dead_lettered().await.is_empty(), "it was delivered");
    kit.advance(AFTER_LEASE).await;
    kit.enqueue("two").await;
    receiver.accept_next("two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_message_that_the_handler_cannot_record_becomes_a_dead_letter() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    // The handler's table rejects this key.
    kit.enqueue("!").await;
    receiver.next().await.reject(DeliveryError::Permanent("550 no such user".to_owned()));
    kit.wait_for_rows(1, "store.outbox WHERE dead_lettered_at IS NOT NULL").await;
    assert_eq!(kit.row("!").await["last_error"], "550 no such user");
    assert!(kit.dead_lettered().await.is_empty());
}

/// The dead letter and the handler's rows commit together.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_that_cannot_be_recorded_leaves_no_row_of_the_handler() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    let refuse = "CREATE TRIGGER alive BEFORE UPDATE OF dead_lettered_at ON store.outbox FOR EACH ROW \
         EXECUTE FUNCTION store.reject_change()";
    kit.database.run(refuse).await;
    let worker = kit.store.spawn_outbox_worker(receiver.clone());
    kit.enqueue("one").await;
    receiver.next().await.reject(DeliveryError::Permanent("550 no such user".to_owned()));
    worker.stop().await;
    assert!(kit.row("one").await["dead_lettered_at"].is_null());
    assert!(kit.dead_lettered().await.is_empty());
}
