//! The ports that the git node's adapter implements.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::RepositoryId;

use crate::model::{BranchName, Commits, PathQuery, RepoBlob, RepoRefs, RepoTree};
use crate::service::NodeAddress;

/// The reason why a call to the git node failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentsError {
    /// The repository has no such branch, tag or commit.
    NoRef(String),
    /// The commit has no such path.
    NoPath,
    /// The node did not respond, or its response violates the protocol.
    Unreachable(String),
}

/// The contents of repositories, which are stored at the git node. An implementation limits the duration of a call.
#[async_trait]
pub trait Contents: Send + Sync {
    /// Returns the branches and tags.
    async fn refs(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        default_branch: &BranchName,
    ) -> Result<RepoRefs, ContentsError>;

    /// Returns a directory.
    async fn tree(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        at: &PathQuery,
    ) -> Result<RepoTree, ContentsError>;

    /// Returns a file.
    async fn blob(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        at: &PathQuery,
    ) -> Result<RepoBlob, ContentsError>;

    /// Returns at most `limit` commits that changed the path.
    async fn commits(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        at: &PathQuery,
        limit: u16,
    ) -> Result<Commits, ContentsError>;
}

/// The ports of this context.
#[derive(Clone)]
pub struct Ports {
    pub contents: Arc<dyn Contents>,
}
