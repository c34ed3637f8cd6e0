//! Construction of repositories, and their port to the git node.

use std::sync::Arc;

use async_trait::async_trait;
use git::{
    BranchName, CommitPosition, CommitRange, Contents, ContentsError, PathQuery, Ports, RefTarget, RepoBlob, RepoRefs,
    RepoTree, Repositories, RepositoryLocation, Site,
};
use kernel::Paging;
use providers::{GitNodeClient, GitNodeError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use store::Store;

use crate::config::Config;

pub(super) fn wire(config: &Config, store: &Store) -> Repositories {
    let site = Site { git_url: config.gateway.site.git_url.clone(), ssh_host: config.gateway.site.ssh_host.clone() };
    let ports = Ports { contents: Arc::new(ContentsPort(GitNodeClient::default())) };
    Repositories::new(store.clone(), config.limits, site, ports).with_abuse_limits(config.abuse_limits)
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
        repository: &RepositoryLocation<'_>,
        operation: &str,
        at: &PathQuery,
        more: &[(&str, &str)],
    ) -> Result<T, ContentsError> {
        let RepositoryLocation { node, id, user, org } = repository;
        let (id, user) = (id.to_string(), user.to_string());
        let path = ["internal", "v1", "repositories", &id, operation];
        let parameters = [("ref", at.name.as_deref()), ("path", at.path.as_deref())];
        let mut query = vec![("user", user.as_str()), ("org", *org)];
        query.extend(parameters.into_iter().filter_map(|(name, value)| Some((name, value?))));
        query.extend_from_slice(more);
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
        repository: &RepositoryLocation<'_>,
        default_branch: &BranchName,
    ) -> Result<RepoRefs, ContentsError> {
        let Refs { branches, tags } = self.get(repository, "refs", &PathQuery::default(), &[]).await?;
        Ok(RepoRefs { default_branch: default_branch.clone(), branches, tags })
    }

    async fn tree(&self, repository: &RepositoryLocation<'_>, at: &PathQuery) -> Result<RepoTree, ContentsError> {
        self.get(repository, "tree", at, &[]).await
    }

    async fn blob(&self, repository: &RepositoryLocation<'_>, at: &PathQuery) -> Result<RepoBlob, ContentsError> {
        self.get(repository, "blob", at, &[]).await
    }

    async fn commits(
        &self,
        repository: &RepositoryLocation<'_>,
        at: &PathQuery,
        paging: &Paging<CommitPosition>,
    ) -> Result<CommitRange, ContentsError> {
        let limit = paging.limit.to_string();
        let Some(CommitPosition { start, skip }) = &paging.after else {
            return self.get(repository, "commits", at, &[("limit", &limit)]).await;
        };
        let skip = skip.to_string();
        self.get(repository, "commits", at, &[("limit", &limit), ("start", start.as_str()), ("skip", &skip)]).await
    }
}
