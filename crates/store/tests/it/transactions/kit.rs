//! A store for each test with a table of notes, and a second store for checks.

use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::Jsonb;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use kernel::audit::{Actor, Credential, Event};
use kernel::{ClockRng, OrgId, Secret, SessionId, UserId};
use serde_json::{Value, json};
use store::{Config, Connection, Result, Store, Timeouts};
use testkit::{LONG_TIMEOUTS, TestDatabase};
use uuid::Uuid;

pub struct Kit {
    pub store: Store,
    /// A second store, for checks, so that they do not use the connections of `store`.
    observer: Store,
    _database: TestDatabase,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Jsonb)]
    row: Value,
}

impl Kit {
    pub async fn start() -> Self {
        Self::open(4, 0, LONG_TIMEOUTS).await
    }

    /// Starts with at most this many connections, and with the default timeouts.
    pub async fn with(connections: usize) -> Self {
        Self::open(connections, 0, Timeouts::default()).await
    }

    /// Starts with this many connections, divided among this many threads.
    pub async fn divided(connections: usize, threads: usize) -> Self {
        Self::open(connections, threads, LONG_TIMEOUTS).await
    }

    pub async fn open(connections: usize, threads: usize, timeouts: Timeouts) -> Self {
        let database = TestDatabase::create().await;
        let named = |name: &str| Config::new(Secret::new(database.url()), name);
        let open = |config: &Config| Store::new(config, ClockRng::system()).unwrap();
        let store = open(&Config { connections, threads, timeouts, ..named("test") });
        let observer = open(&Config { connections: 4, ..named("observer") });
        let kit = Self { store, observer, _database: database };
        kit.db_execute(
            "CREATE TABLE note (id int CONSTRAINT note_pkey PRIMARY KEY, text text NOT NULL,
                 answers int CONSTRAINT note_answers_fkey REFERENCES note (id) DEFERRABLE INITIALLY DEFERRED);
             INSERT INTO note VALUES (0, 'zero')",
        )
        .await;
        kit
    }

    /// Returns the texts of all notes, ordered by id.
    pub async fn db_notes(&self) -> Vec<String> {
        let rows = self.db_rows("SELECT text FROM note ORDER BY id").await;
        rows.iter().map(|row| row["text"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn db_audits(&self) -> usize {
        self.db_rows("SELECT id FROM store.audit").await.len()
    }

    /// Returns the rows of a statement, each as one JSON object.
    pub async fn db_rows(&self, statement: &str) -> Vec<Value> {
        rows(&mut self.observer.connection().await.unwrap(), statement).await.unwrap()
    }

    pub async fn db_execute(&self, statement: &str) {
        self.observer.connection().await.unwrap().batch_execute(statement).await.unwrap();
    }

    /// Waits until a statement returns this many rows.
    pub async fn db_until(&self, count: usize, statement: &str) {
        let arrived = async {
            while self.db_rows(statement).await.len() != count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let arrived = tokio::time::timeout(Duration::from_secs(20), arrived).await;
        assert!(arrived.is_ok(), "never {count} rows: {statement}");
    }
}

pub async fn rows(connection: &mut Connection, statement: &str) -> Result<Vec<Value>> {
    let query = diesel::sql_query(format!("SELECT to_jsonb(t) AS row FROM ({statement}) t"));
    let rows: Vec<Row> = query.load(connection).await?;
    Ok(rows.into_iter().map(|row| row.row).collect())
}

pub async fn write(tx: &mut Connection, id: i32) -> Result<()> {
    diesel::sql_query(format!("INSERT INTO note VALUES ({id}, 'note {id}')")).execute(tx).await?;
    Ok(())
}

/// Returns the process id of the backend of this connection.
pub async fn pid(connection: &mut Connection) -> i64 {
    rows(connection, "SELECT pg_backend_pid() AS pid").await.unwrap()[0]["pid"].as_i64().unwrap()
}

pub fn actor() -> Actor {
    let session = SessionId::from_uuid(Uuid::from_u128(2));
    Actor::user(UserId::from_uuid(Uuid::from_u128(1)), Credential::Session(session), None, "req-1")
}

pub fn event() -> Event {
    Event {
        name: "note.write",
        org: Some(OrgId::from_uuid(Uuid::from_u128(3))),
        account: None,
        target: "note".to_owned(),
        data: json!({ "a": [1, null] }),
    }
}
