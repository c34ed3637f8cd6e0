//! The errors of this context.

use kernel::{ApiError, Code, InvalidField, InvalidFields, Kind, Time};
use serde_json::{Value, json};

use crate::model::RepoName;

/// An error of the repository service.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("there is no such repository in this project")]
    RepoNotFound,
    #[error("the project already has a repository with the name {0}; choose another name")]
    RepoExists(RepoName),
    #[error("a project can have {limit} repositories, the number of this project; delete a repository first")]
    RepoLimit { limit: i32 },
    #[error(
        "the organization deleted {limit} repositories in the last 30 days, with those of deleted projects; it can \
         create a repository at {erase_at}, when one of them is erased"
    )]
    DeletedLimit { limit: u32, erase_at: Time },
    #[error("the repository has no branch, tag or commit {0}")]
    NoRef(String),
    #[error("there is no file or directory at this path")]
    NoPath,
    #[error("this installation has no git node; ask its operator to add one")]
    Unavailable,
    #[error("the git node does not respond; try again in a moment")]
    Unreachable,
    #[error("too many of your reads of repositories are in progress (at most {limit}); retry when one has finished")]
    TooManyReads { limit: usize },
    #[error("too many concurrent reads of repositories; try again in a moment")]
    ReadsAtCapacity,
    #[error("there is no project at this path")]
    ProjectNotFound,
    #[error(transparent)]
    Fields(#[from] InvalidFields),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl GitError {
    /// 409: the name of the repository is taken.
    pub const REPO_EXISTS: Code =
        Code::new("repo_exists", Kind::Conflict, "The project already has a repository with this name.");
    /// 409: the project has the maximum number of repositories.
    pub const REPO_LIMIT: Code = Code::new(
        "repo_limit",
        Kind::Conflict,
        "The project has reached the limit of repositories. `details` contains `limit`.",
    );
    /// 409: the organization deleted too many repositories, against abuse.
    pub const DELETED_LIMIT: Code = Code::new(
        "deleted_repo_limit",
        Kind::Conflict,
        "The organization deleted too many repositories in the last 30 days, with those of deleted projects, which are \
         not erased yet. `details` contains `limit`, and `eraseAt`: the time at which the organization can create a \
         repository again.",
    );
    /// 404: the repository has no such ref.
    pub const NO_REF: Code =
        Code::new("no_ref", Kind::NotFound, "The repository has no such branch, tag or commit, or no commits at all.");
    /// 404: the commit has no such path, and, for a history, no earlier commit had it.
    pub const NO_PATH: Code = Code::new(
        "no_path",
        Kind::NotFound,
        "The commit has no file or directory at this path; for `commits`, no commit of the history changed it.",
    );
    /// 503: the installation has no git node.
    pub const UNAVAILABLE: Code = Code::new("git_unavailable", Kind::Unavailable, "The installation has no git node.");
    /// 503: the git node does not respond.
    pub const UNREACHABLE: Code = Code::new("git_unreachable", Kind::Unavailable, "The git node does not respond.");
}

impl From<InvalidField> for GitError {
    fn from(field: InvalidField) -> Self {
        Self::Fields(field.into())
    }
}

impl ApiError for GitError {
    fn code(&self) -> &'static Code {
        match self {
            Self::RepoNotFound | Self::ProjectNotFound => &Code::NOT_FOUND,
            Self::RepoExists(_) => &Self::REPO_EXISTS,
            Self::RepoLimit { .. } => &Self::REPO_LIMIT,
            Self::DeletedLimit { .. } => &Self::DELETED_LIMIT,
            Self::NoRef(_) => &Self::NO_REF,
            Self::NoPath => &Self::NO_PATH,
            Self::Unavailable => &Self::UNAVAILABLE,
            Self::Unreachable => &Self::UNREACHABLE,
            Self::TooManyReads { .. } => &Code::RATE_LIMITED,
            Self::ReadsAtCapacity => &Code::UNAVAILABLE,
            Self::Fields(_) => &Code::BAD_REQUEST,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::RepoLimit { limit } => Some(json!({ "limit": limit })),
            Self::TooManyReads { limit } => Some(json!({ "limit": limit, "of": "user" })),
            Self::DeletedLimit { limit, erase_at } => Some(json!({ "limit": limit, "eraseAt": erase_at })),
            Self::Fields(invalid) => Some(invalid.details()),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<i64> {
        matches!(self, Self::TooManyReads { .. }).then_some(5)
    }
}
