//! The users, identities and sessions of a project, in the schema `svc_auth` of its database.
//!
//! The node connects as a login that owns this schema and has no other privileges. The project's own logins cannot read
//! or change the schema. All statements name it, and the search path contains only `pg_catalog`, so that no object of
//! the project is used.

mod pool;
mod schema;
mod sessions;
mod sign_in;
mod sql_uuid;
pub mod upkeep;
mod users;

pub use pool::{Pool, Pools};
pub use sessions::{TokenDigest, lifetime, slide_interval};
pub use sign_in::NewSession;
pub use users::{MAX_PAGE, User, UserPage};

use crate::database::server::ConnectError;

/// Why the database of a project did not serve a call.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{0}")]
    Unavailable(&'static str),
    /// The flow has already created a session.
    #[error("the state was already used")]
    UsedState,
    /// The account has signed in with a later registration of the provider.
    #[error("the registration of the provider has ended")]
    EndedRegistration,
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
}

impl From<ConnectError> for StoreError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::TimedOut => Self::TIMED_OUT,
            ConnectError::Postgres(error) => Self::Postgres(error),
        }
    }
}

pub type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// The node has no databases, or the database of the project is missing or closed, for example during a restore.
    pub const CLOSED: Self = Self::Unavailable("the database is closed");
    /// All connections are in use.
    pub const BUSY: Self = Self::Unavailable("all connections to the database are in use");
    /// Postgres did not respond in time.
    pub const TIMED_OUT: Self = Self::Unavailable("the database did not respond in time");
}
