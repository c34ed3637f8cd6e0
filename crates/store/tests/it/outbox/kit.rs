//! A store for each test, and a receiver that the test controls.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use diesel::sql_types::{Text, Uuid as SqlUuid};
use diesel_async::RunQueryDsl as _;
use kernel::audit::{Actor, Event};
use kernel::seal::Keys;
use kernel::{Secret, Time};
use serde_json::{Value, json};
use store::outbox::{DeliveryError, Message, OutboxHandler};
use store::{Config, Connection, Error, Outcome, Result, Store};
use testkit::{TestClock, TestDatabase, keys};
use tokio::sync::{Mutex, mpsc, oneshot};

/// The default topic.
pub const TOPIC: &str = "mail";

/// One second more than the lease, in seconds.
pub const AFTER_LEASE: i64 = 61;

pub struct Kit {
    pub store: Store,
    pub clock: TestClock,
    pub database: TestDatabase,
}

impl Kit {
    pub async fn start() -> Self {
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        database
            .run(
                "CREATE TABLE recorded (message uuid, key text CONSTRAINT recorded_key_check CHECK (key <> '?'));
                 CREATE TABLE dead_lettered (message uuid, key text CONSTRAINT dead_key_check CHECK (key <> '!'))",
            )
            .await;
        let store = open(&database, &clock, keys());
        Self { store, clock, database }
    }

    /// Returns a store of another process, with these keys.
    pub fn other(&self, keys: Keys) -> Store {
        open(&self.database, &self.clock, keys)
    }

    pub async fn enqueue(&self, key: &str) {
        self.enqueue_to(TOPIC, key).await;
    }

    pub async fn enqueue_to(&self, topic: &str, key: &str) {
        let payload = json!({ "token": "hunter2" });
        self.change(async |tx| self.store.enqueue(tx, topic, key, &payload).await).await.unwrap();
    }

    /// Runs `work` in a transaction that changes something.
    pub async fn change<T>(&self, work: impl AsyncFnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let work = async |tx: &mut Connection| Ok::<_, Error>(Outcome::Changed(work(tx).await?, event()));
        self.store.transaction(&actor(), work).await
    }

    /// Advances the clock and wakes up all workers.
    pub async fn advance(&self, seconds: i64) {
        self.clock.advance(seconds);
        self.database.run("NOTIFY outbox").await;
    }

    /// Returns the row of a message.
    pub async fn row(&self, key: &str) -> Value {
        let rows = self.database.rows(&format!("SELECT * FROM store.outbox WHERE key = '{key}'")).await;
        let [row] = rows.as_slice() else { panic!("{key} is queued once: {rows:?}") };
        row.clone()
    }

    /// Returns the keys of the recorded deliveries.
    pub async fn recorded(&self) -> Vec<String> {
        self.keys_of("recorded").await
    }

    /// Returns the keys of the messages that the handler recorded as dead letters.
    pub async fn dead_lettered(&self) -> Vec<String> {
        self.keys_of("dead_lettered").await
    }

    async fn keys_of(&self, table: &str) -> Vec<String> {
        let rows = self.database.rows(&format!("SELECT key FROM {table} ORDER BY key")).await;
        rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the queue is empty.
    pub async fn wait_until_empty(&self) {
        self.wait_for_rows(0, "store.outbox").await;
    }

    /// Waits until the table has this many rows.
    pub async fn wait_for_rows(&self, count: i64, from: &str) {
        let arrived = async {
            while self.database.number(&format!("SELECT count(*) FROM {from}")).await != count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(30), arrived).await.is_ok(), "never {count} rows in {from}");
    }
}

fn open(database: &TestDatabase, clock: &TestClock, keys: Keys) -> Store {
    let config = Config { keys, ..Config::new(Secret::new(database.url()), "test") };
    Store::new(&config, clock.clock_rng()).unwrap()
}

/// The receiver of a topic. Each delivery waits for the test's response.
pub struct Receiver {
    topic: &'static str,
    tenant_limit: usize,
    sender: mpsc::UnboundedSender<Arrival>,
    arrivals: Mutex<mpsc::UnboundedReceiver<Arrival>>,
}

/// A delivery in progress. If it is dropped without a response, it never gets one.
pub struct Arrival {
    pub message: Message,
    response: oneshot::Sender<std::result::Result<(), DeliveryError>>,
}

impl Receiver {
    pub fn new() -> Arc<Self> {
        Self::for_topic(TOPIC)
    }

    pub fn for_topic(topic: &'static str) -> Arc<Self> {
        Self::create(topic, usize::MAX)
    }

    /// Returns a receiver with a limit on the concurrent deliveries of an organization.
    pub fn with_tenant_limit(tenant_limit: usize) -> Arc<Self> {
        Self::create(TOPIC, tenant_limit)
    }

    fn create(topic: &'static str, tenant_limit: usize) -> Arc<Self> {
        let (sender, arrivals) = mpsc::unbounded_channel();
        Arc::new(Self { topic, tenant_limit, sender, arrivals: Mutex::new(arrivals) })
    }

    /// Returns the next delivery.
    pub async fn next(&self) -> Arrival {
        let mut arrivals = self.arrivals.lock().await;
        let arrival = tokio::time::timeout(Duration::from_secs(30), arrivals.recv()).await;
        arrival.unwrap_or_else(|_| panic!("no delivery")).unwrap()
    }

    /// Accepts the next delivery, which must be about `key`.
    pub async fn accept_next(&self, key: &str) -> Message {
        let arrival = self.next().await;
        assert_eq!(arrival.message.key, key);
        arrival.accept()
    }
}

impl Arrival {
    pub fn accept(self) -> Message {
        let _ = self.response.send(Ok(()));
        self.message
    }

    pub fn reject(self, error: DeliveryError) {
        let _ = self.response.send(Err(error));
    }
}

#[async_trait]
impl OutboxHandler for Receiver {
    fn topic(&self) -> &'static str {
        self.topic
    }

    fn max_concurrency_per_tenant(&self) -> usize {
        self.tenant_limit
    }

    async fn deliver(&self, message: &Message) -> std::result::Result<(), DeliveryError> {
        let (response, responded) = oneshot::channel();
        self.sender.send(Arrival { message: message.clone(), response }).unwrap();
        match responded.await {
            Ok(response) => response,
            Err(_) => std::future::pending().await,
        }
    }

    async fn on_delivered(&self, tx: &mut Connection, message: &Message, _: Time) -> Result<()> {
        let insert = diesel::sql_query("INSERT INTO recorded VALUES ($1, $2)");
        insert.bind::<SqlUuid, _>(message.id).bind::<Text, _>(&message.key).execute(tx).await?;
        Ok(())
    }

    async fn on_dead_letter(&self, tx: &mut Connection, message: &Message, _: Time) -> Result<()> {
        let insert = diesel::sql_query("INSERT INTO dead_lettered VALUES ($1, $2)");
        insert.bind::<SqlUuid, _>(message.id).bind::<Text, _>(&message.key).execute(tx).await?;
        Ok(())
    }
}

/// Polls a future once, which must not finish.
pub async fn poll_once(future: Pin<&mut impl Future<Output = ()>>) {
    tokio::select! {
        biased;
        () = future => panic!("the future finished"),
        () = std::future::ready(()) => {}
    }
}

pub fn actor() -> Actor {
    Actor::operator("test")
}

fn event() -> Event {
    Event::of_platform("test.change", "test", json!({}))
}
