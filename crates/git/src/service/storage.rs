//! The storage that the repositories of an organization use.

use kernel::{OrgId, Plan, RepositoryId};

use super::{Repositories, Result};
use crate::error::GitError;
use crate::repository::RepoRepository as _;

/// The storage of an organization's repositories, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepositoryStorage {
    /// The limit of the organization's plan.
    pub limit: u64,
    /// The sum of the last reported sizes, with those of deleted repositories that are not erased yet.
    pub used: u64,
}

impl Repositories {
    /// Stores the size of a repository that the git node reports.
    ///
    /// # Errors
    /// Returns [`GitError::RepoNotFound`] if the repository does not exist or was erased, or [`GitError::Store`].
    pub async fn set_size(&self, repository: RepositoryId, size_bytes: u64) -> Result<()> {
        let size_bytes = i64::try_from(size_bytes).unwrap_or(i64::MAX);
        let exists = self.store.connection().await?.repo_set_size(repository, size_bytes).await?;
        if exists { Ok(()) } else { Err(GitError::RepoNotFound) }
    }

    /// Returns the storage that the repositories of an organization use.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn storage(&self, org: OrgId, plan: Plan) -> Result<RepositoryStorage> {
        let used = self.store.connection().await?.repo_stored_bytes(org).await?;
        Ok(RepositoryStorage { limit: self.limits.for_plan(plan).repository_bytes, used: used.unsigned_abs() })
    }
}
