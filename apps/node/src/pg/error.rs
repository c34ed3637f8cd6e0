//! Errors of `env.db`.

use std::io;

/// Why a call failed. [`Self::code`] and the message are the `code` and the message of the `Error` that worker code
/// catches (spec/runtime.md, `env.db`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    /// Postgres refused a statement. The code is its SQLSTATE.
    #[error("{message}")]
    Statement { code: String, message: String },
    /// An argument of the call is malformed, or does not fit the type that Postgres expects.
    #[error("{0}")]
    InvalidArgument(String),
    /// The statement cannot work in a call.
    #[error("{0}")]
    NotSupported(&'static str),
    /// The statement was canceled at the time limit, in seconds.
    #[error("The statement took more than {0} s and was canceled. Split it, or add an index.")]
    TimedOut(u64),
    /// The batch was canceled at the time limit for all its statements together, in seconds.
    #[error("The batch took more than {0} s and was canceled. Split it.")]
    BatchTimedOut(u64),
    /// The result is too large. The limit is in bytes.
    #[error("The result is larger than {0} bytes. Add a LIMIT, or select fewer columns.")]
    ResultTooLarge(usize),
    /// The project uses all its connections, or its owner uses all the memory that it may use at the node.
    #[error("{0}")]
    Busy(&'static str),
    /// The database cannot be reached, or ended the session.
    #[error("{0}")]
    Unavailable(&'static str),
}

pub type Result<T> = std::result::Result<T, DatabaseError>;

impl DatabaseError {
    pub const NOT_CONFIGURED: Self =
        Self::Unavailable("This node has no Postgres. Ask the operator to set SVC_NODE_DATABASE_URL.");
    pub const CLOSED: Self = Self::Unavailable(
        "The database accepts no connections at the moment, for example because it is being restored. Try again later.",
    );
    pub const FAILED: Self = Self::Unavailable("The connection to the database failed. Try again later.");
    pub const LOST: Self = Self::Unavailable(
        "The connection to the database was lost during the call. Check whether its statements were executed before \
         you repeat it.",
    );
    pub const NO_CONNECTION: Self = Self::Busy(
        "All connections of the project were in use for 10 s. Make fewer calls at the same time, or shorter ones.",
    );
    pub const NO_MEMORY: Self =
        Self::Busy("Too many large calls are in progress. Make fewer of them at the same time.");
    pub const INCOMPLETE: Self = Self::Unavailable("The call was not received completely. Try again.");

    /// Returns the stable code: the SQLSTATE of an error of Postgres, or a word.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Statement { code, .. } => code,
            Self::InvalidArgument(_) => "invalid_argument",
            // feature_not_supported and query_canceled
            Self::NotSupported(_) => "0A000",
            Self::TimedOut(_) | Self::BatchTimedOut(_) => "57014",
            Self::ResultTooLarge(_) => "result_too_large",
            Self::Busy(_) => "too_many_connections",
            Self::Unavailable(_) => "database_unavailable",
        }
    }
}

/// Why a connection did not execute a call.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The call failed. The connection can serve others after a reset.
    #[error(transparent)]
    Call(DatabaseError),
    /// Postgres reported an error. It ignores messages until the next Sync.
    #[error("{0}")]
    Server(ServerError),
    /// The connection cannot be used again. Worker code receives this error.
    #[error(transparent)]
    Fatal(DatabaseError),
    /// The connection failed, or the server violated the protocol.
    #[error("{0}")]
    Broken(io::Error),
    /// The worker no longer waits for the result.
    #[error("the worker no longer waits for the result")]
    Abandoned,
}

/// An error that Postgres reported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (SQLSTATE {code})")]
pub struct ServerError {
    /// The SQLSTATE.
    pub code: String,
    pub message: String,
    /// Whether the server ended the session.
    pub is_fatal: bool,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        Self::Call(error)
    }
}

impl From<ServerError> for DatabaseError {
    fn from(error: ServerError) -> Self {
        Self::Statement { code: error.code, message: error.message }
    }
}

/// Creates the failure for a violation of the protocol by the server.
pub fn violation(what: &'static str) -> Failure {
    Failure::Broken(io::Error::new(io::ErrorKind::InvalidData, what))
}
