//! What tests of every context stand on: a database and a store of their own, a clock that stands, looks behind the
//! service.

mod clock;
mod database;
mod store;

use kernel::audit::{Actor, Credential};
use kernel::seal::Keys;
use kernel::{SessionId, UserId};

pub use clock::TestClock;
pub use database::{CLUSTER, TestDatabase};
pub use store::{Audit, TestStore};

/// Keys to seal with, the same in every test.
#[must_use]
#[expect(clippy::expect_used, reason = "a constant that parses")]
pub fn keys() -> Keys {
    Keys::parse("test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("32 bytes")
}

/// A user with a session of the same number.
#[must_use]
pub fn by(user: UserId) -> Actor {
    let credential = Credential::Session(SessionId::from_uuid(user.as_uuid()));
    Actor { user: Some(user), credential, request_id: "req-1".to_owned(), once: None }
}
