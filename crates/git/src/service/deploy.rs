//! The deploys of pushes. The git node packs and uploads the commits; each deploy ends once.

use kernel::RepositoryId;
use store::Connection;

use super::{Repositories, Result};
use crate::repository::{Deploy, DeployRepository as _};

/// The largest number of repositories in one response to the git node.
const MAX_REPOSITORIES: i64 = 100;

impl Repositories {
    /// Returns the next pending deploy of a repository: the one with the lowest number.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn next_deploy(&self, repository: RepositoryId) -> Result<Option<Deploy>> {
        let mut connection = self.store.connection().await?;
        let Some(number) = connection.deploy_next(repository).await? else { return Ok(None) };
        Ok(connection.deploy_find(repository, number).await?)
    }

    /// Returns the first repositories with pending deploys after this id, in ascending order.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn repositories_to_deploy(&self, after: Option<RepositoryId>) -> Result<Vec<RepositoryId>> {
        Ok(self.store.connection().await?.deploy_list_repositories(after, MAX_REPOSITORIES).await?)
    }

    /// Returns the deploy of a ref update; `None` if its ref was not the deploy branch.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn find_deploy(&self, repository: RepositoryId, number: i64) -> Result<Option<Deploy>> {
        Ok(self.store.connection().await?.deploy_find(repository, number).await?)
    }

    /// Ends a pending deploy with its version, in the transaction that creates the version. Returns false if the deploy
    /// has ended, is not the next one, or is not wanted any more; the version must not be created then.
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

    /// Ends a pending deploy with the reason why it is not deployed. A no-op for one that has ended.
    ///
    /// # Errors
    /// Returns [`crate::GitError::Store`].
    pub async fn reject_deploy(&self, repository: RepositoryId, number: i64, message: &str) -> Result<()> {
        Ok(self.store.connection().await?.deploy_reject(repository, number, message).await?)
    }
}
