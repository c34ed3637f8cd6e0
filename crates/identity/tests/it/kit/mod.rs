//! Test fixture: a database per test, a manual clock, and ports that can fail on demand.

mod port;

use std::ops::Deref;
use std::sync::Arc;

use identity::{DevLogin, Identity, IdentityError, Session};
use kernel::audit::Actor;
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

    /// Signs in with a subject only.
    pub async fn login(&self, subject: &str) -> Result<Session, IdentityError> {
        self.identity.dev_login(&anonymous_actor(), dev_login(subject, None, None), None).await
    }

    /// Counts the rows of users, sessions, organizations, members and the audit log.
    pub async fn db_counts(&self) -> [i64; 5] {
        let tables = ["identity.users", "identity.sessions", "orgs.orgs", "orgs.members", "store.audit"];
        let mut counts = [0; 5];
        for (count, table) in counts.iter_mut().zip(tables) {
            *count = self.db_number(&format!("SELECT count(*) FROM {table}")).await;
        }
        counts
    }
}

/// Returns the actor of a request without a credential.
pub fn anonymous_actor() -> Actor {
    Actor::anonymous("req-1")
}

pub fn dev_login(subject: &str, email: Option<&str>, name: Option<&str>) -> DevLogin {
    DevLogin {
        subject: subject.parse().unwrap(),
        email: email.map(|email| email.parse().unwrap()),
        name: name.map(str::to_owned),
    }
}
