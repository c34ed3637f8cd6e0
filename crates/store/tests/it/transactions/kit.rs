//! A store of its own for each test, with a table of notes, and looks behind it.

use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::Jsonb;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use kernel::audit::{Actor, Credential, Event};
use kernel::{OrgId, Secret, SessionId, UserId, World};
use serde_json::{Value, json};
use store::{Config, Connection, Result, Store};
use testkit::TestDatabase;
use uuid::Uuid;

pub struct Kit {
    pub store: Store,
    /// For looks behind the store: none of its connections is this one's.
    behind: Store,
    _database: TestDatabase,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Jsonb)]
    row: Value,
}

impl Kit {
    pub async fn start() -> Self {
        Self::with(4).await
    }

    /// With so many connections at the most.
    pub async fn with(connections: usize) -> Self {
        Self::divided(connections, 0).await
    }

    /// With so many, divided among so many threads.
    pub async fn divided(connections: usize, threads: usize) -> Self {
        let database = TestDatabase::create().await;
        let open = |name: &str, connections, threads| {
            let url = Secret::new(database.url());
            Store::new(&Config { connections, threads, ..Config::new(url, name) }, World::system()).unwrap()
        };
        let kit = Self { store: open("test", connections, threads), behind: open("behind", 4, 0), _database: database };
        kit.db_execute(
            "CREATE TABLE note (id int CONSTRAINT note_pkey PRIMARY KEY, text text NOT NULL,
                 answers int CONSTRAINT note_answers_fkey REFERENCES note (id) DEFERRABLE INITIALLY DEFERRED);
             INSERT INTO note VALUES (0, 'zero')",
        )
        .await;
        kit
    }

    /// The texts of all notes, by their numbers.
    pub async fn db_notes(&self) -> Vec<String> {
        let rows = self.db_rows("SELECT text FROM note ORDER BY id").await;
        rows.iter().map(|row| row["text"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn db_audits(&self) -> usize {
        self.db_rows("SELECT id FROM store.audit").await.len()
    }

    /// The rows of a statement, each as one JSON object.
    pub async fn db_rows(&self, statement: &str) -> Vec<Value> {
        rows(&mut self.behind.connection().await.unwrap(), statement).await.unwrap()
    }

    pub async fn db_execute(&self, statement: &str) {
        self.behind.connection().await.unwrap().batch_execute(statement).await.unwrap();
    }

    /// Waits until a statement answers so many rows.
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

/// The process of the server that this connection speaks to.
pub async fn pid(connection: &mut Connection) -> i64 {
    rows(connection, "SELECT pg_backend_pid() AS pid").await.unwrap()[0]["pid"].as_i64().unwrap()
}

pub fn actor() -> Actor {
    Actor {
        user: Some(UserId::from_uuid(Uuid::from_u128(1))),
        credential: Credential::Session(SessionId::from_uuid(Uuid::from_u128(2))),
        request_id: "req-1".to_owned(),
        once: None,
    }
}

pub fn event() -> Event {
    Event {
        name: "note.write",
        org: Some(OrgId::from_uuid(Uuid::from_u128(3))),
        target: "note".to_owned(),
        data: json!({ "a": [1, null] }),
    }
}
