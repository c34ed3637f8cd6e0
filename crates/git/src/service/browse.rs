//! Browsing: reads the contents of repositories from the git node.

use kernel::{InvalidField, Page, Paging, UserId};

use super::read_permits::{ReadPermit, RepoRead};
use super::{Repositories, Result};
use crate::error::GitError;
use crate::model::{Commit, CommitPosition, PathQuery, RepoBlob, RepoRefs, RepoTree, is_ref_name};
use crate::ports::{ContentsError, RepositoryLocation};
use crate::repository::RepoRecord;

/// The maximum length of a path, which the OpenAPI document also states.
const MAX_PATH_CHARACTERS: usize = 4096;

impl Repositories {
    /// Returns the branches and tags of a repository. An empty repository has none.
    ///
    /// # Errors
    /// Returns [`GitError::TooManyReads`], [`GitError::ReadsAtCapacity`], [`GitError::Unavailable`] or
    /// [`GitError::Unreachable`].
    pub async fn refs(&self, user: UserId, org: &str, repo: &RepoRecord) -> Result<RepoRead<RepoRefs>> {
        // Two lists, of up to 8 MiB each.
        let (repository, permit) = self.begin_read(user, org, repo, 2).await?;
        let contents = self.ports.contents.refs(&repository, &repo.default_branch).await?;
        Ok(RepoRead { contents, permit })
    }

    /// Returns a directory.
    ///
    /// # Errors
    /// Returns [`GitError::Fields`], [`GitError::NoRef`], [`GitError::NoPath`] or the errors of [`Repositories::refs`].
    pub async fn tree(&self, user: UserId, org: &str, repo: &RepoRecord, at: PathQuery) -> Result<RepoRead<RepoTree>> {
        let (repository, permit) = self.begin_read(user, org, repo, 1).await?;
        let contents = self.ports.contents.tree(&repository, &at_default(repo, at)?).await?;
        Ok(RepoRead { contents, permit })
    }

    /// Returns a file.
    ///
    /// # Errors
    /// Returns [`GitError::Fields`], [`GitError::NoRef`], [`GitError::NoPath`] or the errors of [`Repositories::refs`].
    pub async fn blob(&self, user: UserId, org: &str, repo: &RepoRecord, at: PathQuery) -> Result<RepoRead<RepoBlob>> {
        let (repository, permit) = self.begin_read(user, org, repo, 1).await?;
        let contents = self.ports.contents.blob(&repository, &at_default(repo, at)?).await?;
        Ok(RepoRead { contents, permit })
    }

    /// Returns the history of a ref, or the commits in it that changed a path, newest first. The position of a later page
    /// contains the start of the history, so the ref no longer matters.
    ///
    /// # Errors
    /// Returns [`GitError::Fields`], [`GitError::NoRef`], [`GitError::NoPath`] or the errors of [`Repositories::refs`].
    pub async fn commits(
        &self,
        user: UserId,
        org: &str,
        repo: &RepoRecord,
        at: PathQuery,
        paging: &Paging<CommitPosition>,
    ) -> Result<RepoRead<Page<Commit>>> {
        let (repository, permit) = self.begin_read(user, org, repo, 1).await?;
        let range = self.ports.contents.commits(&repository, &at_default(repo, at)?, paging).await?;
        let skipped = paging.after.as_ref().map_or(0, |position| position.skip);
        let skip = skipped.saturating_add(u32::try_from(range.items.len()).unwrap_or(u32::MAX));
        let next = range.has_more.then_some(CommitPosition { start: range.start, skip });
        Ok(RepoRead { contents: Page::new(range.items, next), permit })
    }

    /// Begins a read that counts as this number of reads.
    async fn begin_read<'a>(
        &self,
        user: UserId,
        org: &'a str,
        repo: &RepoRecord,
        count: u32,
    ) -> Result<(RepositoryLocation<'a>, ReadPermit)> {
        let permit = self.read_permits.acquire(user, count)?;
        let node = self.node_address().await?.ok_or(GitError::Unavailable)?;
        Ok((RepositoryLocation { node, id: repo.id, user, org }, permit))
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
