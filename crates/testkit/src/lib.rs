//! Shared test fixtures: a database and a store for each test, one test clock, bundles, ports, programs, and a private
//! Postgres cluster.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "called by tests only, where a panic reports the failure"
)]

mod administration;
pub mod bundle;
mod clock;
mod database;
mod log_policy;
mod port;
mod private_postgres;
mod program;
mod sessions;
mod store;

use futures_util::stream::{self, StreamExt as _};
use kernel::audit::{Actor, Credential};
use kernel::seal::Keys;
use kernel::{SessionId, UserId};
use uuid::Uuid;

pub use clock::TestClock;
pub use database::{CLUSTER, TestDatabase};
pub use log_policy::enforce as enforce_log_policy;
pub use port::{reserved_address, reserved_dns_address, reserved_port};
pub use private_postgres::PrivatePostgres;
pub use program::write_program;
pub use store::{Audit, LONG_TIMEOUTS, TestStore, store_config};

/// The environment of programs that need no certificate of the system. A debug build takes long to load them, once for
/// each HTTP client.
pub const WITHOUT_SYSTEM_CERTIFICATES: (&str, &str) =
    ("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/src/authority.pem"));

/// Returns sealing keys, which are the same in every test.
#[must_use]
pub fn keys() -> Keys {
    Keys::parse("test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap()
}

/// Returns a random id.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "nodes choose the ids of calls")]
pub fn random_id() -> Uuid {
    Uuid::new_v4()
}

/// Returns a user as an actor, with a session of the same id.
#[must_use]
pub fn session_actor(user: UserId) -> Actor {
    let credential = Credential::Session(SessionId::from_uuid(user.as_uuid()));
    Actor::user(user, credential, None, "req-1")
}

/// Runs operations concurrently, four at a time, as the gateway runs the changes of an organization. Returns the results
/// in the order of the operations.
pub async fn four_at_a_time<F: Future>(operations: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    stream::iter(operations).buffered(4).collect().await
}
