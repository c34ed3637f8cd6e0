//! Construction of repositories, and their port to the git node.

use std::sync::Arc;

use async_trait::async_trait;
use git::{
    BranchName, Commits, Contents, ContentsError, NodeAddress, PathQuery, Ports, RefTarget, RepoBlob, RepoRefs,
    RepoTree, Repositories, Site,
};
use kernel::RepositoryId;
use providers::{GitNodeClient, GitNodeError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use store::Store;

use crate::config::Config;

pub(super) fn wire(config: &Config, store: &Store) -> Repositories {
    let site = Site { git_url: config.gateway.site.git_url.clone(), ssh_host: config.gateway.site.ssh_host.clone() };
    let ports = Ports { contents: Arc::new(ContentsPort(GitNodeClient::default())) };
    Repositories::new(store.clone(), site, ports)
}

struct ContentsPort(GitNodeClient);

/// The branches and tags, as the git node returns them.
#[derive(Deserialize)]
struct Refs {
    branches: Vec<RefTarget>,
    tags: Vec<RefTarget>,
}

impl ContentsPort {
    async fn get<T: DeserializeOwned>(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        operation: &str,
        at: &PathQuery,
        limit: Option<u16>,
    ) -> Result<T, ContentsError> {
        let repository = repository.to_string();
        let path = ["internal", "v1", "repositories", &repository, operation];
        let limit = limit.map(|limit| limit.to_string());
        let parameters = [("ref", at.name.as_deref()), ("path", at.path.as_deref()), ("limit", limit.as_deref())];
        let query: Vec<_> = parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.0.get(&node.url, &node.secret, &path, &query).await.map_err(|error| match error {
            GitNodeError::NoRef => ContentsError::NoRef(at.name.clone().unwrap_or_default()),
            GitNodeError::NoPath => ContentsError::NoPath,
            GitNodeError::Unreachable(reason) => ContentsError::Unreachable(reason),
        })
    }
}

#[async_trait]
impl Contents for ContentsPort {
    async fn refs(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        default_branch: &BranchName,
    ) -> Result<RepoRefs, ContentsError> {
        let Refs { branches, tags } = self.get(node, repository, "refs", &PathQuery::default(), None).await?;
        Ok(RepoRefs { default_branch: default_branch.clone(), branches, tags })
    }

    async fn tree(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        at: &PathQuery,
    ) -> Result<RepoTree, ContentsError> {
        self.get(node, repository, "tree", at, None).await
    }

    async fn blob(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        at: &PathQuery,
    ) -> Result<RepoBlob, ContentsError> {
        self.get(node, repository, "blob", at, None).await
    }

    async fn commits(
        &self,
        node: &NodeAddress,
        repository: RepositoryId,
        at: &PathQuery,
        limit: u16,
    ) -> Result<Commits, ContentsError> {
        self.get(node, repository, "commits", at, Some(limit)).await
    }
}
