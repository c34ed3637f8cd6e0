//! Browsing: reads the contents of repositories from the git node.

use kernel::InvalidField;

use super::{NodeAddress, Repositories, Result};
use crate::error::GitError;
use crate::model::{Commits, PathQuery, RepoBlob, RepoRefs, RepoTree, is_ref_name};
use crate::ports::ContentsError;
use crate::repository::RepoRecord;

/// The maximum number of commits in a response.
const MAX_COMMITS: u16 = 200;
/// The maximum length of a path, which the OpenAPI document also states.
const MAX_PATH_CHARACTERS: usize = 4096;

impl Repositories {
    /// Returns the branches and tags of a repository. An empty repository has none.
    ///
    /// # Errors
    /// Returns [`GitError::Unavailable`] or [`GitError::Unreachable`].
    pub async fn refs(&self, repo: &RepoRecord) -> Result<RepoRefs> {
        let node = self.address().await?;
        Ok(self.ports.contents.refs(&node, repo.id, &repo.default_branch).await?)
    }

    /// Returns a directory.
    ///
    /// # Errors
    /// Returns [`GitError::Field`], [`GitError::NoRef`], [`GitError::NoPath`], [`GitError::Unavailable`] or
    /// [`GitError::Unreachable`].
    pub async fn tree(&self, repo: &RepoRecord, at: PathQuery) -> Result<RepoTree> {
        let node = self.address().await?;
        Ok(self.ports.contents.tree(&node, repo.id, &at_default(repo, at)?).await?)
    }

    /// Returns a file.
    ///
    /// # Errors
    /// Returns [`GitError::Field`], [`GitError::NoRef`], [`GitError::NoPath`], [`GitError::Unavailable`] or
    /// [`GitError::Unreachable`].
    pub async fn blob(&self, repo: &RepoRecord, at: PathQuery) -> Result<RepoBlob> {
        let node = self.address().await?;
        Ok(self.ports.contents.blob(&node, repo.id, &at_default(repo, at)?).await?)
    }

    /// Returns the history of a ref, or the commits in it that changed a path. A `limit` above 200 counts as 200.
    ///
    /// # Errors
    /// Returns [`GitError::Field`], [`GitError::NoRef`], [`GitError::NoPath`], [`GitError::Unavailable`] or
    /// [`GitError::Unreachable`].
    pub async fn commits(&self, repo: &RepoRecord, at: PathQuery, limit: u16) -> Result<Commits> {
        let node = self.address().await?;
        let (at, limit) = (at_default(repo, at)?, limit.min(MAX_COMMITS));
        Ok(self.ports.contents.commits(&node, repo.id, &at, limit).await?)
    }

    async fn address(&self) -> Result<NodeAddress> {
        self.node_address().await?.ok_or(GitError::Unavailable)
    }
}

/// Adds the default branch to a query without a ref. Rejects expressions such as `main~1`, which are not refs.
fn at_default(repo: &RepoRecord, at: PathQuery) -> Result<PathQuery> {
    let PathQuery { name, path } = at;
    let name = name.unwrap_or_else(|| repo.default_branch.to_string());
    if !is_ref_name(&name) {
        return Err(InvalidField::new("ref", "must be a branch, a tag or a commit id").into());
    }
    if path.as_ref().is_some_and(|path| path.chars().count() > MAX_PATH_CHARACTERS) {
        return Err(InvalidField::new("path", format!("must have at most {MAX_PATH_CHARACTERS} characters")).into());
    }
    Ok(PathQuery { name: Some(name), path })
}

impl From<ContentsError> for GitError {
    fn from(error: ContentsError) -> Self {
        match error {
            ContentsError::NoRef(name) => Self::NoRef(name),
            ContentsError::NoPath => Self::NoPath,
            ContentsError::Unreachable(cause) => {
                tracing::warn!(cause, "the git node did not respond");
                Self::Unreachable
            }
        }
    }
}
