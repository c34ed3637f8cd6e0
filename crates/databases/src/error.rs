//! The errors of this context.

use kernel::{ApiError, Code, Kind, Plan};
use serde_json::{Value, json};

/// An error of the databases service. No error contains a password.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("no such project")]
    ProjectNotFound,
    #[error("the project has no database; enable it first")]
    NoDatabase,
    #[error("the database has no such token")]
    TokenNotFound,
    #[error("the project has no such generation")]
    GenerationNotFound,
    #[error("the project has no such operation")]
    OperationNotFound,
    #[error("a database can have {limit} tokens, and this database already has {count}; revoke a token first")]
    TokenLimit { limit: u32, count: i64, plan: Plan },
    #[error("the token is revoked, but its node did not confirm that it refuses the login; send the request again")]
    RevocationUnconfirmed,
    #[error("restoring needs a database; enable it first")]
    DatabaseRequired,
    #[error("an operation or an export of the database is in progress; wait until it has ended")]
    OperationInProgress,
    #[error("the project is suspended; ask the operator of this installation")]
    Suspended,
    #[error("confirm must be the project's name; nothing was deleted")]
    ConfirmMismatch,
    #[error("app sign-in needs the database; disable it first")]
    AuthEnabled,
    #[error("the operation has passed the point up to which it can be aborted")]
    NotAbortable,
    #[error("the export failed: {0}; try again")]
    ExportFailed(String),
    #[error(
        "the limit of {limit} {operations} of a project's database in 24 hours is reached; retry in {retry_after} s"
    )]
    DailyLimit { operations: &'static str, limit: u32, retry_after: i64 },
    #[error("the project has no home node; ask the operator of this installation")]
    NoHomeNode,
    #[error("the project's home node has no Postgres; ask the operator of this installation")]
    NoNodeAdmin,
    #[error("the link to the nodes is turned off; ask the operator of this installation")]
    NoCore,
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl DatabaseError {
    /// 409: the limit of tokens is reached.
    pub const TOKEN_LIMIT: Code = Code::new(
        "token_limit",
        Kind::Conflict,
        "The limit of tokens is reached: of a user's live access tokens, or of a database's tokens. For a database, \
         `details` contains `limit`, `count` and `plan`.",
    );
    /// 409: the project has no database that a restore could replace.
    pub const DATABASE_REQUIRED: Code =
        Code::new("database_required", Kind::Conflict, "The project has no database. Enable it first.");
    /// 409: another operation or export is in progress.
    pub const OPERATION_IN_PROGRESS: Code =
        Code::new("operation_in_progress", Kind::Conflict, "An operation or an export of the database is in progress.");
    /// 409: the operator suspended the placement.
    pub const SUSPENDED: Code = Code::new("suspended", Kind::Conflict, "The operator suspended the project.");
    /// 400: the deletion is not confirmed. The context `projects` has the same code.
    pub const CONFIRM_MISMATCH: Code = Code::new(
        "confirm_mismatch",
        Kind::Invalid,
        "`confirm` does not equal the project's name. Nothing was deleted.",
    );
    /// 409: the database is in use by app sign-in.
    pub const AUTH_ENABLED: Code =
        Code::new("auth_enabled", Kind::Conflict, "App sign-in needs the database. Disable it first.");
    /// 409: the operation can no longer be aborted.
    pub const NOT_ABORTABLE: Code = Code::new(
        "not_abortable",
        Kind::Conflict,
        "The operation has ended, has reached its irreversible phase, or is of a kind that cannot be aborted.",
    );
    /// 502: the node could not create the image.
    pub const EXPORT_FAILED: Code =
        Code::new("export_failed", Kind::Upstream, "The node could not export the database. Try again.");
    /// 503: the installation has no node for the project.
    pub const NO_HOME_NODE: Code =
        Code::new("no_home_node", Kind::Unavailable, "No node is available for the project.");
    /// 503: the project's node has no Postgres.
    pub const NO_NODE_ADMIN: Code =
        Code::new("no_node_admin", Kind::Unavailable, "The project's home node has no Postgres.");
    /// 503: the operation needs the link to the nodes, which is off. The context `convergence` has the same code.
    pub const NO_CORE: Code = Code::new("no_core", Kind::Unavailable, "The link to the nodes is off or down.");
}

impl ApiError for DatabaseError {
    fn code(&self) -> &'static Code {
        match self {
            Self::ProjectNotFound
            | Self::NoDatabase
            | Self::TokenNotFound
            | Self::GenerationNotFound
            | Self::OperationNotFound => &Code::NOT_FOUND,
            Self::TokenLimit { .. } => &Self::TOKEN_LIMIT,
            Self::RevocationUnconfirmed => &Code::UNAVAILABLE,
            Self::DatabaseRequired => &Self::DATABASE_REQUIRED,
            Self::OperationInProgress => &Self::OPERATION_IN_PROGRESS,
            Self::Suspended => &Self::SUSPENDED,
            Self::ConfirmMismatch => &Self::CONFIRM_MISMATCH,
            Self::AuthEnabled => &Self::AUTH_ENABLED,
            Self::NotAbortable => &Self::NOT_ABORTABLE,
            Self::ExportFailed(_) => &Self::EXPORT_FAILED,
            Self::DailyLimit { .. } => &Code::RATE_LIMITED,
            Self::NoHomeNode => &Self::NO_HOME_NODE,
            Self::NoNodeAdmin => &Self::NO_NODE_ADMIN,
            Self::NoCore => &Self::NO_CORE,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::TokenLimit { limit, count, plan } => Some(json!({ "limit": limit, "count": count, "plan": plan })),
            Self::DailyLimit { limit, .. } => Some(json!({ "limit": limit })),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<i64> {
        match self {
            Self::DailyLimit { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}
