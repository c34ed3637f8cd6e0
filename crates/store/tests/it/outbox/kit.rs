//! A store of its own for each test, and a receiver that the test plays.

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
use store::outbox::{Deliver, Message, Undelivered};
use store::{Config, Connection, Error, Outcome, Result, Store};
use testkit::{TestClock, TestDatabase, keys};
use tokio::sync::{Mutex, mpsc, oneshot};

/// What messages of these tests are of, unless they say otherwise.
pub const TOPIC: &str = "mail";

pub const LEASE: i64 = 61;

pub struct Kit {
    pub store: Store,
    pub clock: TestClock,
    pub database: TestDatabase,
}

impl Kit {
    pub async fn start() -> Self {
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        database.run("CREATE TABLE noted (message uuid, key text CONSTRAINT noted_key_check CHECK (key <> '?'))").await;
        let store = open(&database, &clock, keys());
        Self { store, clock, database }
    }

    /// Another process, under these keys.
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

    /// A unit of work that changes something.
    pub async fn change<T>(&self, work: impl AsyncFnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let work = async |tx: &mut Connection| Ok::<_, Error>(Outcome::Changed(work(tx).await?, event()));
        self.store.transaction(&actor(), work).await
    }

    /// Lets time pass and has every pass look.
    pub async fn advance(&self, seconds: i64) {
        self.clock.advance(seconds);
        self.database.run("NOTIFY outbox").await;
    }

    /// The row of a message.
    pub async fn row(&self, key: &str) -> Value {
        let rows = self.database.rows(&format!("SELECT * FROM store.outbox WHERE key = '{key}'")).await;
        let [row] = rows.as_slice() else { panic!("{key} is queued once: {rows:?}") };
        row.clone()
    }

    /// The keys of what was noted as delivered.
    pub async fn noted(&self) -> Vec<String> {
        let rows = self.database.rows("SELECT key FROM noted ORDER BY key").await;
        rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the queue is empty.
    pub async fn emptied(&self) {
        self.until(0, "store.outbox").await;
    }

    /// Waits until there are so many rows.
    pub async fn until(&self, count: i64, from: &str) {
        let arrived = async {
            while self.database.number(&format!("SELECT count(*) FROM {from}")).await != count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(30), arrived).await.is_ok(), "never {count} rows: {from}");
    }
}

fn open(database: &TestDatabase, clock: &TestClock, keys: Keys) -> Store {
    let config = Config { keys, ..Config::new(Secret::new(database.url()), "test") };
    Store::new(&config, clock.world()).unwrap()
}

/// The receiver of a topic: each delivery waits for the test to answer it.
pub struct Post {
    topic: &'static str,
    tell: mpsc::UnboundedSender<Arrival>,
    arrivals: Mutex<mpsc::UnboundedReceiver<Arrival>>,
}

/// What is being delivered. Dropped without an answer, it never gets one.
pub struct Arrival {
    pub message: Message,
    answer: oneshot::Sender<std::result::Result<(), Undelivered>>,
}

impl Post {
    pub fn new() -> Arc<Self> {
        Self::of(TOPIC)
    }

    pub fn of(topic: &'static str) -> Arc<Self> {
        let (tell, arrivals) = mpsc::unbounded_channel();
        Arc::new(Self { topic, tell, arrivals: Mutex::new(arrivals) })
    }

    /// What arrives next.
    pub async fn next(&self) -> Arrival {
        let mut arrivals = self.arrivals.lock().await;
        let arrival = tokio::time::timeout(Duration::from_secs(30), arrivals.recv()).await;
        arrival.unwrap_or_else(|_| panic!("nothing arrives")).unwrap()
    }

    /// What arrives next, which is about `key`, is taken.
    pub async fn takes(&self, key: &str) -> Message {
        let arrival = self.next().await;
        assert_eq!(arrival.message.key, key);
        arrival.take()
    }
}

impl Arrival {
    pub fn take(self) -> Message {
        let _ = self.answer.send(Ok(()));
        self.message
    }

    pub fn refuse(self, why: Undelivered) {
        let _ = self.answer.send(Err(why));
    }
}

#[async_trait]
impl Deliver for Post {
    fn topic(&self) -> &'static str {
        self.topic
    }

    async fn deliver(&self, message: &Message) -> std::result::Result<(), Undelivered> {
        let (answer, answered) = oneshot::channel();
        self.tell.send(Arrival { message: message.clone(), answer }).unwrap();
        match answered.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }

    async fn delivered(&self, tx: &mut Connection, message: &Message, _: Time) -> Result<()> {
        let insert = diesel::sql_query("INSERT INTO noted VALUES ($1, $2)");
        insert.bind::<SqlUuid, _>(message.id).bind::<Text, _>(&message.key).execute(tx).await?;
        Ok(())
    }
}

/// Runs what has to wait up to where it waits.
pub async fn begun(waits: Pin<&mut impl Future<Output = ()>>) {
    tokio::select! {
        biased;
        () = waits => panic!("it ended"),
        () = std::future::ready(()) => {}
    }
}

pub fn actor() -> Actor {
    Actor::operator("test")
}

fn event() -> Event {
    Event { name: "test.change", org: None, target: "test".to_owned(), data: json!({}) }
}
