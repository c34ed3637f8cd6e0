//! A database of its own for each test, a clock that stands, and a port that can be told to fail.

mod port;

use std::sync::Arc;

use diesel::QueryableByName;
use diesel::sql_types::{Jsonb, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use identity::{DevLogin, Identity, IdentityError, Session};
use kernel::audit::{Actor, Credential};
use kernel::{Secret, Time};
use serde_json::Value;
use store::testing::{TestClock, TestDatabase};
use store::{Lease, Store};

pub use port::Port;

pub struct Kit {
    pub identity: Identity,
    pub port: Port,
    pub store: Store,
    clock: TestClock,
    pub database: TestDatabase,
}

/// A row of the audit log, without its id and time.
#[derive(Debug, PartialEq, QueryableByName)]
pub struct Audit {
    #[diesel(sql_type = Text)]
    pub event: String,
    #[diesel(sql_type = Text)]
    pub credential: String,
    #[diesel(sql_type = Text)]
    pub target: String,
    #[diesel(sql_type = Jsonb)]
    pub data: Value,
}

impl Kit {
    pub async fn start() -> Self {
        let (database, clock, port) = (TestDatabase::create().await, TestClock::default(), Port::default());
        let mut config = store::Config::new(Secret::new(database.url()), "test");
        // Nobody of a race waits for a connection: what is raced for is a row.
        config.connections = 32;
        let store = Store::new(&config, clock.world()).unwrap();
        let identity = Identity::new(store.clone(), Arc::new(port.clone()), Arc::new(port.clone()));
        Self { identity, port, store, clock, database }
    }

    /// A sign-in without a word about oneself.
    pub async fn login(&self, subject: &str) -> Result<Session, IdentityError> {
        self.identity.dev_login(&anyone(), dev_login(subject, None, None), None).await
    }

    /// What the audit log tells of the present moment, which is over then: the next look tells of what came after.
    pub async fn audited(&self) -> Vec<Audit> {
        let query = diesel::sql_query("SELECT * FROM store.audit WHERE created_at = $1 ORDER BY event, id");
        let now = self.now();
        self.clock.pass(1);
        query.bind::<Timestamptz, _>(now).load(&mut self.connection().await).await.unwrap()
    }

    /// The rows of a statement, each as one JSON object.
    pub async fn db_rows(&self, statement: &str) -> Vec<Value> {
        self.database.rows(statement).await
    }

    /// Rows of users, sessions, organizations, members and the audit log.
    pub async fn db_counts(&self) -> [i64; 5] {
        let tables = ["identity.users", "identity.sessions", "orgs.orgs", "orgs.members", "store.audit"];
        let mut counts = [0; 5];
        for (count, table) in counts.iter_mut().zip(tables) {
            *count = self.database.number(&format!("SELECT count(*) FROM {table}")).await;
        }
        counts
    }

    pub fn pass(&self, seconds: i64) {
        self.clock.pass(seconds);
    }

    pub fn now(&self) -> Time {
        self.store.world().now()
    }

    pub async fn connection(&self) -> Lease {
        self.store.connection().await.unwrap()
    }
}

/// Somebody who has not signed in yet.
pub fn anyone() -> Actor {
    Actor { user: None, credential: Credential::None, request_id: "req-1".to_owned(), once: None }
}

pub fn dev_login(subject: &str, email: Option<&str>, name: Option<&str>) -> DevLogin {
    DevLogin {
        subject: subject.parse().unwrap(),
        email: email.map(|email| email.parse().unwrap()),
        name: name.map(str::to_owned),
    }
}
