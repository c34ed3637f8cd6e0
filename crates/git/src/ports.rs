//! The ports that the git node's adapter implements.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::{Paging, RepositoryId, UserId};

use crate::model::{BranchName, CommitPosition, CommitRange, PathQuery, RepoBlob, RepoRefs, RepoTree};
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

/// A repository at the git node, for one read. The node divides its capacity by user and by organization.
#[derive(Debug, Clone)]
pub struct RepositoryLocation<'a> {
    pub node: NodeAddress,
    pub id: RepositoryId,
    /// The user who reads.
    pub user: UserId,
    /// The slug of the organization.
    pub org: &'a str,
}

/// The contents of repositories, which are stored at the git node. An implementation limits the duration of a call.
#[async_trait]
pub trait Contents: Send + Sync {
    /// Returns the branches and tags.
    async fn refs(
        &self,
        repository: &RepositoryLocation<'_>,
        default_branch: &BranchName,
    ) -> Result<RepoRefs, ContentsError>;

    /// Returns a directory.
    async fn tree(&self, repository: &RepositoryLocation<'_>, at: &PathQuery) -> Result<RepoTree, ContentsError>;

    /// Returns a file.
    async fn blob(&self, repository: &RepositoryLocation<'_>, at: &PathQuery) -> Result<RepoBlob, ContentsError>;

    /// Returns commits that changed the path. They can be fewer than the limit.
    async fn commits(
        &self,
        repository: &RepositoryLocation<'_>,
        at: &PathQuery,
        paging: &Paging<CommitPosition>,
    ) -> Result<CommitRange, ContentsError>;
}

/// The ports of this context.
#[derive(Clone)]
pub struct Ports {
    pub contents: Arc<dyn Contents>,
}
