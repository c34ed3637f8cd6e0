//! A store with its own database for each test.

use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{OrgId, Secret, Time, UserId};
use serde_json::Value;
use store::{Config, PooledConnection, Store, Timeouts};

use crate::{TestClock, TestDatabase, keys};

/// Timeouts that no wait reaches, even on a busy machine. A test about a timeout uses the default ones.
pub const LONG_TIMEOUTS: Timeouts = Timeouts::all(Duration::from_secs(60));

/// A store, its database and its clock. A context's fixtures hold it next to the service and dereference to it.
pub struct TestStore {
    pub store: Store,
    pub clock: TestClock,
    pub database: TestDatabase,
}

/// A row of the audit log, without its id and time.
#[derive(Debug, PartialEq, QueryableByName)]
pub struct Audit {
    #[diesel(sql_type = Text)]
    pub event: String,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub org_id: Option<OrgId>,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub actor_id: Option<UserId>,
    #[diesel(sql_type = Text)]
    pub credential: String,
    #[diesel(sql_type = Text)]
    pub target: String,
    #[diesel(sql_type = Jsonb)]
    pub data: Value,
    #[diesel(sql_type = Text)]
    pub request_id: String,
}

impl Audit {
    /// Returns the audit row that an event writes.
    #[must_use]
    pub fn of(actor: &Actor, event: Event) -> Self {
        let Event { name, org, account: _, target, data } = event;
        Self {
            event: name.to_owned(),
            org_id: org,
            actor_id: actor.user,
            credential: actor.credential.to_string(),
            target,
            data,
            request_id: actor.request_id.clone(),
        }
    }
}

/// Returns the configuration of a store with the sealing keys of the tests and [`LONG_TIMEOUTS`].
#[must_use]
pub fn store_config(url: String) -> Config {
    Config { keys: keys(), timeouts: LONG_TIMEOUTS, ..Config::new(Secret::new(url), "test") }
}

impl TestStore {
    /// Starts a store with enough connections that concurrent operations compete only for rows, not for connections.
    pub async fn start() -> Self {
        Self::with(32).await
    }

    /// Starts a store with at most this many connections.
    ///
    /// # Panics
    /// Panics if there is no cluster.
    pub async fn with(connections: usize) -> Self {
        Self::with_timeouts(connections, LONG_TIMEOUTS).await
    }

    /// Starts a store with at most this many connections and these timeouts.
    ///
    /// # Panics
    /// Panics if there is no cluster.
    pub async fn with_timeouts(connections: usize, timeouts: Timeouts) -> Self {
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        let config = Config { connections, timeouts, ..store_config(database.url()) };
        let store = Store::new(&config, clock.clock_rng()).unwrap();
        Self { store, clock, database }
    }

    /// Returns the store of another process, whose clock is ahead of this one and of that of Postgres.
    ///
    /// # Panics
    /// Panics if the address of the database is invalid.
    #[must_use]
    pub fn with_clock_ahead(&self, seconds: i64) -> Store {
        let system_clock = TestClock::running().ahead(seconds).clock_rng();
        let config = Config { system_clock, ..store_config(self.database.url()) };
        Store::new(&config, self.clock.ahead(seconds).clock_rng()).unwrap()
    }

    /// Returns the audit rows of the current time. Then advances the clock, so that the next call returns only later
    /// rows.
    ///
    /// # Panics
    /// Panics if Postgres is unreachable.
    pub async fn audited(&self) -> Vec<Audit> {
        let query = diesel::sql_query("SELECT * FROM store.audit WHERE created_at = $1 ORDER BY event, id");
        let query = query.bind::<Timestamptz, _>(self.now());
        self.clock.advance(1);
        query.load(&mut self.connection().await).await.unwrap()
    }

    /// Moves the clock forward.
    pub fn advance(&self, seconds: i64) {
        self.clock.advance(seconds);
    }

    /// Returns the clock's current time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.store.clock_rng().now()
    }

    /// Checks out a pooled connection.
    ///
    /// # Panics
    /// Panics if Postgres is unreachable.
    pub async fn connection(&self) -> PooledConnection {
        self.store.connection().await.unwrap()
    }

    /// See [`TestDatabase::rows`].
    pub async fn db_rows(&self, statement: &str) -> Vec<Value> {
        self.database.rows(statement).await
    }

    /// See [`TestDatabase::number`].
    pub async fn db_number(&self, statement: &str) -> i64 {
        self.database.number(statement).await
    }

    /// See [`TestDatabase::run`].
    pub async fn db_execute(&self, statement: &str) {
        self.database.run(statement).await;
    }
}
