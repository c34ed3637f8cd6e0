//! Database errors: Postgres is unavailable, the caller lost the permission, or the service has a bug.

use diesel::result::{DatabaseErrorKind, Error as Diesel};
use kernel::{ApiError, CallerError, Code};

/// The result of a database operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A database error. Clients may see the message; the cause stays in `source()`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres is unreachable, busy, out of space, or canceled the statement. The same request may succeed later.
    #[error("the database did not answer in time; try again in a moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A statement failed unexpectedly.
    #[error("something went wrong on our side")]
    Statement(#[source] Diesel),
    /// A value contradicts the types.
    #[error("something went wrong on our side")]
    Inconsistent(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The caller lost the permission before the change committed.
    #[error(transparent)]
    Caller(#[from] CallerError),
}

/// Prefixes of the messages of transient errors, for which diesel-async keeps no SQLSTATE: lock, statement and idle
/// timeouts, deadlocks, restarts, failovers and full disks.
const TRANSIENT: &[&str] = &[
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

/// The prefixes that mean that Postgres rejects writes for now, but may serve reads.
const READ_ONLY: &[&str] = &["could not extend file", "could not write", "No space left on device", "cannot execute"];

impl From<Diesel> for Error {
    fn from(error: Diesel) -> Self {
        let transient = match &error {
            Diesel::DatabaseError(kind, info) => match kind {
                DatabaseErrorKind::SerializationFailure
                | DatabaseErrorKind::ReadOnlyTransaction
                | DatabaseErrorKind::ClosedConnection
                | DatabaseErrorKind::UnableToSendCommand => true,
                _ => TRANSIENT.iter().any(|prefix| info.message().starts_with(prefix)),
            },
            Diesel::BrokenTransactionManager | Diesel::RollbackErrorOnCommit { .. } => true,
            _ => false,
        };
        if transient { Self::Unavailable(error.into()) } else { Self::Statement(error) }
    }
}

impl Error {
    /// Returns whether the statement violated the named constraint, so that repositories can distinguish a conflict
    /// from a bug.
    #[must_use]
    pub fn violates(&self, constraint: &str) -> bool {
        match self {
            Self::Statement(Diesel::DatabaseError(_, info)) => info.constraint_name() == Some(constraint),
            _ => false,
        }
    }

    /// Returns whether Postgres rejected a write because its disk is full or it is a standby. Reads may still succeed.
    #[must_use]
    pub fn refuses_writes(&self) -> bool {
        let Self::Unavailable(source) = self else { return false };
        match source.downcast_ref::<Diesel>() {
            Some(Diesel::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _)) => true,
            Some(Diesel::DatabaseError(_, info)) => READ_ONLY.iter().any(|prefix| info.message().starts_with(prefix)),
            _ => false,
        }
    }

    /// Creates the error for a stored value that contradicts the types.
    #[must_use]
    pub fn inconsistent(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Inconsistent(error.into())
    }
}

impl ApiError for Error {
    fn code(&self) -> &'static Code {
        match self {
            Self::Unavailable(_) => &Code::UNAVAILABLE,
            Self::Statement(_) | Self::Inconsistent(_) => &Code::INTERNAL,
            Self::Caller(error) => error.code(),
        }
    }

    fn details(&self) -> Option<serde_json::Value> {
        match self {
            Self::Caller(error) => error.details(),
            Self::Unavailable(_) | Self::Statement(_) | Self::Inconsistent(_) => None,
        }
    }
}
