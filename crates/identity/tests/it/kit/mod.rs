//! A database of its own for each test, a clock that stands, and a port that can be told to fail.

mod port;

use std::ops::Deref;
use std::sync::Arc;

use identity::{DevLogin, Identity, IdentityError, Session};
use kernel::audit::{Actor, Credential};
use testkit::TestStore;

pub use port::Port;

pub struct Kit {
    pub identity: Identity,
    pub port: Port,
    base: TestStore,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    pub async fn start() -> Self {
        let (base, port) = (TestStore::start().await, Port::default());
        let identity = Identity::new(base.store.clone(), Arc::new(port.clone()), Arc::new(port.clone()));
        Self { identity, port, base }
    }

    /// A sign-in without a word about oneself.
    pub async fn login(&self, subject: &str) -> Result<Session, IdentityError> {
        self.identity.dev_login(&anyone(), dev_login(subject, None, None), None).await
    }

    /// Rows of users, sessions, organizations, members and the audit log.
    pub async fn db_counts(&self) -> [i64; 5] {
        let tables = ["identity.users", "identity.sessions", "orgs.orgs", "orgs.members", "store.audit"];
        let mut counts = [0; 5];
        for (count, table) in counts.iter_mut().zip(tables) {
            *count = self.db_number(&format!("SELECT count(*) FROM {table}")).await;
        }
        counts
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
