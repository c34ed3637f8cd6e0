//! What can go wrong between a context and Postgres, in two kinds: away, and our fault.

use diesel::result::{DatabaseErrorKind, Error as Diesel};
use kernel::{Code, Failure};

/// The result of anything that asks Postgres.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the database. Messages are safe to show; the cause stays in `source()`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres is away, busy, out of space, or gave up a statement: the same request may succeed later.
    #[error("the database did not answer in time; try again in a moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A statement that should not have failed.
    #[error("something went wrong on our side")]
    Statement(#[source] Diesel),
    /// A row that contradicts the types.
    #[error("something went wrong on our side")]
    Inconsistent(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Starts of messages that mean "later", where diesel-async keeps no SQLSTATE: lock, statement and idle timeouts,
/// deadlocks, restarts, failovers and full disks.
const PASSING: &[&str] = &[
    "canceling statement due to",
    "deadlock detected",
    "terminating connection",
    "the database system is",
    "could not extend file",
    "could not write",
    "could not fsync",
    "could not access file",
    "No space left on device",
    "out of shared memory",
    "remaining connection slots",
    "sorry, too many clients already",
    "cannot execute",
];

/// Those of them that mean that nothing can be written for now, while reading goes on.
const READ_ONLY: &[&str] = &["could not extend file", "could not write", "No space left on device", "cannot execute"];

impl From<Diesel> for Error {
    fn from(error: Diesel) -> Self {
        let passing = match &error {
            Diesel::DatabaseError(kind, info) => match kind {
                DatabaseErrorKind::SerializationFailure
                | DatabaseErrorKind::ReadOnlyTransaction
                | DatabaseErrorKind::ClosedConnection
                | DatabaseErrorKind::UnableToSendCommand => true,
                _ => PASSING.iter().any(|start| info.message().starts_with(start)),
            },
            Diesel::BrokenTransactionManager | Diesel::RollbackErrorOnCommit { .. } => true,
            _ => false,
        };
        if passing { Self::Unavailable(error.into()) } else { Self::Statement(error) }
    }
}

impl Error {
    /// Whether the statement ran into the named constraint: a repository asks this to tell a conflict from a fault.
    #[must_use]
    pub fn violates(&self, constraint: &str) -> bool {
        match self {
            Self::Statement(Diesel::DatabaseError(_, info)) => info.constraint_name() == Some(constraint),
            _ => false,
        }
    }

    /// Whether Postgres took no writes: its disk is full, or it follows another one. It may well answer reads.
    #[must_use]
    pub fn refuses_writes(&self) -> bool {
        let Self::Unavailable(source) = self else { return false };
        match source.downcast_ref::<Diesel>() {
            Some(Diesel::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _)) => true,
            Some(Diesel::DatabaseError(_, info)) => READ_ONLY.iter().any(|start| info.message().starts_with(start)),
            _ => false,
        }
    }

    /// A stored row that cannot be what it says.
    #[must_use]
    pub fn inconsistent(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Inconsistent(error.into())
    }
}

impl Failure for Error {
    fn code(&self) -> &'static Code {
        match self {
            Self::Unavailable(_) => &Code::UNAVAILABLE,
            Self::Statement(_) | Self::Inconsistent(_) => &Code::INTERNAL,
        }
    }
}
