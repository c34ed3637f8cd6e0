//! A store on a database of its own for every test.

use diesel::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{OrgId, Secret, Time, UserId};
use serde_json::Value;

use super::{TestClock, TestDatabase, keys};
use crate::{Config, Lease, Store};

/// A store, its database, and the clock that both go by. A context's kit holds it beside the service, and dereferences to
/// it, so that the kit itself says only what is its own.
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
    /// The row that an event leaves.
    #[must_use]
    pub fn of(actor: &Actor, event: Event) -> Self {
        let Event { name, org, target, data } = event;
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

impl TestStore {
    /// With connections enough: nobody of a race waits for one, since what is raced for is a row.
    pub async fn start() -> Self {
        Self::with(32).await
    }

    /// With so many connections at the most.
    ///
    /// # Panics
    /// When the address of a test's database is none.
    #[expect(clippy::expect_used, reason = "called by tests only, which end like this")]
    pub async fn with(connections: usize) -> Self {
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        let config = Config { connections, keys: keys(), ..Config::new(Secret::new(database.url()), "test") };
        let store = Store::new(&config, clock.world()).expect("the address of a database");
        Self { store, clock, database }
    }

    /// What the audit log tells of the present moment, which is over then: the next look tells of what came after.
    ///
    /// # Panics
    /// When Postgres is away.
    #[expect(clippy::expect_used, reason = "called by tests only, which end like this")]
    pub async fn audited(&self) -> Vec<Audit> {
        let query = diesel::sql_query("SELECT * FROM store.audit WHERE created_at = $1 ORDER BY event, id");
        let query = query.bind::<Timestamptz, _>(self.now());
        self.clock.pass(1);
        query.load(&mut self.connection().await).await.expect("the audit log")
    }

    /// Lets so many seconds pass.
    pub fn pass(&self, seconds: i64) {
        self.clock.pass(seconds);
    }

    /// The moment at which the clock stands.
    #[must_use]
    pub fn now(&self) -> Time {
        self.store.world().now()
    }

    /// A connection of the store's.
    ///
    /// # Panics
    /// When Postgres is away.
    #[expect(clippy::expect_used, reason = "called by tests only, which end like this")]
    pub async fn connection(&self) -> Lease {
        self.store.connection().await.expect("a connection")
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
