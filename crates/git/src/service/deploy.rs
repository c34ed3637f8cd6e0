//! The deploys of pushes. The git node packs and uploads the commits. The result of each deploy is recorded once.

use kernel::RepositoryId;
use store::Connection;

use super::{Repositories, Result};
use crate::repository::{Deploy, DeployRepository as _};

/// The maximum number of repositories in one response to the git node.
const MAX_REPOSITORIES: i64 = 100;

impl Repositories {
    /// Returns the pending deploy of a repository that has the lowest number.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn next_deploy(&self, repository: RepositoryId) -> Result<Option<Deploy>> {
        let mut connection = self.store.connection().await?;
        let Some(number) = connection.deploy_next(repository).await? else { return Ok(None) };
        Ok(connection.deploy_find(repository, number).await?)
    }

    /// Returns the repositories with pending deploys whose ids are greater than `after`, in ascending order.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn repositories_to_deploy(&self, after: Option<RepositoryId>) -> Result<Vec<RepositoryId>> {
        Ok(self.store.connection().await?.deploy_list_repositories(after, MAX_REPOSITORIES).await?)
    }

    /// Returns the deploy of a ref update; `None` if the update was not of the deploy branch.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn find_deploy(&self, repository: RepositoryId, number: i64) -> Result<Option<Deploy>> {
        Ok(self.store.connection().await?.deploy_find(repository, number).await?)
    }

    /// Returns whether a deploy is the next pending one of its repository, which still deploys the branch.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn is_next_deploy(
        &self,
        tx: &mut Connection,
        repository: RepositoryId,
        number: i64,
    ) -> store::Result<bool> {
        if tx.deploy_next(repository).await? != Some(number) {
            return Ok(false);
        }
        Ok(tx.deploy_find(repository, number).await?.is_some_and(|deploy| deploy.is_wanted))
    }

    /// Ends a pending deploy, in the transaction that creates its version. Returns false if the deploy has ended, is
    /// not the next one, or its repository no longer deploys the branch. In these cases, the caller must not create the
    /// version.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn complete_deploy(
        &self,
        tx: &mut Connection,
        repository: RepositoryId,
        number: i64,
        version: i32,
    ) -> store::Result<bool> {
        tx.deploy_complete(repository, number, version).await
    }

    /// Ends a pending deploy with the reason why it is not deployed. A no-op if the deploy has ended.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn reject_deploy(&self, repository: RepositoryId, number: i64, message: &str) -> Result<()> {
        Ok(self.store.connection().await?.deploy_reject(repository, number, message).await?)
    }
}
