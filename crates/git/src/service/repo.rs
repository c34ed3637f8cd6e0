//! Repositories, for members of an organization.

use kernel::audit::{Actor, Event};
use kernel::{InvalidField, Page, Paging, ProjectId, RepositoryId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Repositories, Result, Target};
use crate::error::GitError;
use crate::model::{BranchName, CloneUrls, NewRepo, RefUpdate, Repo, RepoChange, Visibility};
use crate::repository::{RefUpdateRepository as _, RepoRecord, RepoRepository as _};

/// The maximum number of repositories per project.
const MAX_REPOSITORIES: i32 = 1000;

/// The number of ref updates that are kept for each repository (specification, "Limits").
pub(super) const MAX_REF_UPDATES: i64 = 200;

/// How long the contents of a deleted repository are kept (contract section 1, "Plan limits").
const RETENTION_SECONDS: i64 = 30 * 24 * 3600;

/// The path of a repository in URLs.
#[derive(Debug, Clone, Copy)]
pub struct ProjectPath<'a> {
    pub org: &'a str,
    pub project: &'a str,
}

impl Repositories {
    /// Lists the repositories of a project, newest first.
    ///
    /// # Errors
    /// Returns [`GitError::Store`].
    pub async fn list(
        &self,
        project: ProjectId,
        at: ProjectPath<'_>,
        paging: &Paging<RepositoryId>,
    ) -> Result<Page<Repo>> {
        let records = self.store.connection().await?.repo_list(project, paging).await?;
        let repos = records.into_iter().map(|record| self.view(record, at)).collect();
        Ok(Page::cut(repos, paging, |repo: &Repo| repo.id))
    }

    /// Creates an empty repository. The git node creates its directory on the first access.
    ///
    /// # Errors
    /// Returns [`GitError::ProjectNotFound`], [`GitError::RepoExists`], [`GitError::RepoLimit`] or
    /// [`GitError::DeletedLimit`].
    pub async fn create(&self, actor: &Actor, target: Target, at: ProjectPath<'_>, new: NewRepo) -> Result<Repo> {
        let NewRepo { name, visibility, default_branch, deploy_branch } = new;
        let default_branch = match default_branch {
            Some(branch) => branch,
            None => "main".parse::<BranchName>().map_err(|error| InvalidField::new("defaultBranch", error))?,
        };
        let now = self.store.clock_rng().now();
        let record = RepoRecord {
            id: self.store.clock_rng().id_at(now),
            project: target.project,
            name,
            visibility: visibility.unwrap_or(Visibility::Private),
            default_branch,
            deploy_branch,
            created_at: now,
            updated_at: now,
            last_update: 0,
        };
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                lock_project(tx, target.project).await?;
                if !tx.repo_count_raise(target.project, MAX_REPOSITORIES).await? {
                    return Err(GitError::RepoLimit { limit: MAX_REPOSITORIES });
                }
                let limit = self.abuse_limits.deleted_repositories_per_org;
                if let Some(erase_at) = tx.repo_nth_newest_erasure(target.org, now, limit).await? {
                    return Err(GitError::DeletedLimit { limit, erase_at });
                }
                if !tx.repo_insert(&record).await? {
                    return Err(GitError::RepoExists(record.name));
                }
                let data = json!({ "name": record.name, "visibility": record.visibility, "project": target.project });
                let event = Event::in_org("repo.create", target.org, record.id, data);
                Ok(Outcome::Changed(self.view(record, at), event))
            })
            .await
    }

    /// Finds a live repository by its name.
    ///
    /// # Errors
    /// Returns [`GitError::Store`].
    pub async fn find(&self, project: ProjectId, name: &str) -> Result<Option<RepoRecord>> {
        Ok(self.store.connection().await?.repo_find(project, name).await?)
    }

    /// Finds a live repository by its path.
    ///
    /// # Errors
    /// Returns [`GitError::Store`].
    pub async fn find_by_path(&self, at: ProjectPath<'_>, name: &str) -> Result<Option<RepoRecord>> {
        let found = self.store.connection().await?.repo_find_by_path(at.org, at.project, name).await?;
        Ok(found.map(|(_, record)| record))
    }

    /// Finds a live repository of a live project.
    ///
    /// # Errors
    /// Returns [`GitError::Store`].
    pub async fn find_by_id(&self, repository: RepositoryId) -> Result<Option<RepoRecord>> {
        Ok(self.store.connection().await?.repo_find_by_id(repository).await?)
    }

    /// Changes the name, the visibility, the default branch or the deploy branch. A no-op if all values stay the same.
    ///
    /// # Errors
    /// Returns [`GitError::ProjectNotFound`], [`GitError::RepoNotFound`] or [`GitError::RepoExists`].
    pub async fn update(&self, actor: &Actor, target: Target, name: &str, change: RepoChange) -> Result<()> {
        let RepoChange { name: new_name, visibility, default_branch, deploy_branch } = change;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                lock_project(tx, target.project).await?;
                let before = tx.repo_lock(target.project, name).await?.ok_or(GitError::RepoNotFound)?;
                let after = RepoRecord {
                    name: new_name.unwrap_or_else(|| before.name.clone()),
                    visibility: visibility.unwrap_or(before.visibility),
                    default_branch: default_branch.unwrap_or_else(|| before.default_branch.clone()),
                    deploy_branch: deploy_branch.unwrap_or_else(|| before.deploy_branch.clone()),
                    ..before.clone()
                };
                if after == before {
                    return Ok(Outcome::Unchanged(()));
                }
                let after = RepoRecord { updated_at: self.store.clock_rng().now(), ..after };
                tx.repo_update(&after).await.map_err(|error| match error.violates(LIVE_NAME) {
                    true => GitError::RepoExists(after.name.clone()),
                    false => error.into(),
                })?;
                let RepoRecord { id, name, visibility, default_branch, deploy_branch, .. } = after;
                let data = json!({
                    "name": name,
                    "visibility": visibility,
                    "defaultBranch": default_branch,
                    "deployBranch": deploy_branch,
                });
                Ok(Outcome::Changed((), Event::in_org("repo.update", target.org, id, data)))
            })
            .await
    }

    /// Deletes a repository. Its name is free immediately, and its contents are erased after 30 days.
    ///
    /// # Errors
    /// Returns [`GitError::ProjectNotFound`] or [`GitError::RepoNotFound`].
    pub async fn delete(&self, actor: &Actor, target: Target, name: &str) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                lock_project(tx, target.project).await?;
                let repo = tx.repo_lock(target.project, name).await?.ok_or(GitError::RepoNotFound)?;
                let erase_at = self.store.clock_rng().now().plus_seconds(RETENTION_SECONDS);
                tx.repo_delete(&repo, erase_at).await?;
                let data = json!({ "name": repo.name, "project": target.project });
                Ok(Outcome::Changed((), Event::in_org("repo.delete", target.org, repo.id, data)))
            })
            .await
    }

    /// Deletes a batch of the repositories of a project that is being purged, in the caller's transaction, and returns
    /// their number. Their contents are erased immediately.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn purge_batch(&self, tx: &mut Connection, project: ProjectId) -> store::Result<usize> {
        tx.repo_purge_batch(project, self.store.clock_rng().now()).await
    }

    /// Returns the most recent ref updates of a repository, newest first.
    ///
    /// # Errors
    /// Returns [`GitError::RepoNotFound`].
    pub async fn ref_updates(&self, project: ProjectId, name: &str) -> Result<Page<RefUpdate>> {
        let mut connection = self.store.connection().await?;
        let repo = connection.repo_find(project, name).await?.ok_or(GitError::RepoNotFound)?;
        let items = connection.ref_update_list(repo.id, MAX_REF_UPDATES).await?;
        Ok(Page { items, next_cursor: None })
    }

    /// Returns the repository as the API shows it.
    #[must_use]
    pub fn view(&self, record: RepoRecord, at: ProjectPath<'_>) -> Repo {
        let RepoRecord { id, name, visibility, default_branch, deploy_branch, created_at, updated_at, .. } = record;
        let path = format!("{}/{}/{name}.git", at.org, at.project);
        let clone_urls = CloneUrls {
            https: self.site.git_url.as_ref().map(|base| format!("{base}/{path}")),
            ssh: self.site.ssh_host.as_ref().map(|host| format!("ssh://git@{host}/{path}")),
        };
        Repo { id, name, visibility, default_branch, deploy_branch, clone_urls, created_at, updated_at }
    }
}

const LIVE_NAME: &str = "repositories_project_id_name_live_key";

/// Locks the project of a change. It may have been deleted after the policy found it.
async fn lock_project(tx: &mut Connection, project: ProjectId) -> Result<()> {
    if tx.repo_lock_project(project).await? { Ok(()) } else { Err(GitError::ProjectNotFound) }
}
