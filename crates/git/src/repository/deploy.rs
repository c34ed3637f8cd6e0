//! The deploys of pushes.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, ProjectId, RepositoryId, UserId};
use store::{Connection, Prepared, Result};

use crate::model::{BranchName, DeployStatus, PushDeploy};
use crate::schema::{deploys, projects, repositories};

/// A deploy to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployRecord {
    /// The number of the ref update.
    pub number: i64,
    pub branch: BranchName,
    pub commit: String,
    /// The user who pushed.
    pub pusher: UserId,
    /// The name of the push's credential, from the decision about the access. It is not a secret.
    pub credential: String,
    /// The reason why it is not deployed; `None` for a pending deploy.
    pub rejection: Option<String>,
}

/// A deploy, with its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deploy {
    pub repository: RepositoryId,
    /// The number of the ref update.
    pub number: i64,
    pub branch: BranchName,
    pub commit: String,
    /// The user who pushed.
    pub pusher: UserId,
    /// The name of the push's credential, from the decision about the access. It is not a secret.
    pub credential: String,
    pub state: PushDeploy,
    /// Whether the repository still exists, and its deploy branch is still this one.
    pub is_wanted: bool,
    /// The project; `None` if it is deleted.
    pub project: Option<DeployProject>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = deploys)]
struct DeployRow {
    branch: BranchName,
    commit_oid: String,
    pusher_id: UserId,
    credential: String,
    status: DeployStatus,
    version: Option<i32>,
    message: Option<String>,
}

/// The project of a deploy.
#[derive(Debug, Clone, PartialEq, Eq, Queryable)]
pub struct DeployProject {
    pub id: ProjectId,
    pub org: OrgId,
    pub slug: String,
    pub name: String,
}

/// Deploys of pushes on a [`store::Connection`].
pub trait DeployRepository {
    /// Returns the number of pending deploys of a user's pushes, in all repositories.
    async fn deploy_count_pending(&mut self, pusher: UserId) -> Result<i64>;

    /// Inserts deploys of a repository.
    async fn deploy_insert(&mut self, repository: RepositoryId, deploys: &[DeployRecord]) -> Result<()>;

    /// Returns the lowest number among the pending deploys of a repository.
    async fn deploy_next(&mut self, repository: RepositoryId) -> Result<Option<i64>>;

    /// Returns the repositories with pending deploys whose ids are greater than `after`, in ascending order.
    async fn deploy_list_repositories(&mut self, after: Option<RepositoryId>, limit: i64) -> Result<Vec<RepositoryId>>;

    /// Returns a deploy.
    async fn deploy_find(&mut self, repository: RepositoryId, number: i64) -> Result<Option<Deploy>>;

    /// Ends a pending deploy, and stores its version. Returns false if the deploy is not pending, is not the next one
    /// of its repository, or its repository no longer deploys pushes to the branch.
    async fn deploy_complete(&mut self, repository: RepositoryId, number: i64, version: i32) -> Result<bool>;

    /// Ends a pending deploy, and stores the reason why it is not deployed. A no-op if the deploy has ended.
    async fn deploy_reject(&mut self, repository: RepositoryId, number: i64, message: &str) -> Result<()>;

    /// Deletes the ended deploys of a repository up to this number.
    async fn deploy_trim(&mut self, repository: RepositoryId, number: i64) -> Result<()>;
}

impl DeployRepository for Connection {
    async fn deploy_count_pending(&mut self, pusher: UserId) -> Result<i64> {
        let pending = deploys::pusher_id.eq(pusher).and(deploys::status.eq(DeployStatus::Pending));
        Ok(deploys::table.filter(pending).count().get_result(self).await?)
    }

    async fn deploy_insert(&mut self, repository: RepositoryId, deploys: &[DeployRecord]) -> Result<()> {
        let row = |DeployRecord { number, branch, commit, pusher, credential, rejection }: &DeployRecord| {
            let status = if rejection.is_some() { DeployStatus::Rejected } else { DeployStatus::Pending };
            (
                deploys::repository_id.eq(repository),
                deploys::number.eq(*number),
                deploys::branch.eq(branch.clone()),
                deploys::commit_oid.eq(commit.clone()),
                deploys::pusher_id.eq(*pusher),
                deploys::credential.eq(credential.clone()),
                deploys::status.eq(status),
                deploys::message.eq(rejection.clone()),
            )
        };
        let rows: Vec<_> = deploys.iter().map(row).collect();
        diesel::insert_into(deploys::table).values(rows).execute(self).await?;
        Ok(())
    }

    async fn deploy_next(&mut self, repository: RepositoryId) -> Result<Option<i64>> {
        let pending = deploys::repository_id.eq(repository).and(deploys::status.eq(DeployStatus::Pending));
        let query = deploys::table.filter(pending).order(deploys::number).select(deploys::number);
        Ok(query.first(self).await.optional()?)
    }

    async fn deploy_list_repositories(&mut self, after: Option<RepositoryId>, limit: i64) -> Result<Vec<RepositoryId>> {
        let pending = deploys::table.filter(deploys::status.eq(DeployStatus::Pending)).into_boxed();
        let pending = match after {
            Some(after) => pending.filter(deploys::repository_id.gt(after)),
            None => pending,
        };
        let query = pending.select(deploys::repository_id).distinct().order(deploys::repository_id);
        Ok(query.limit(limit).load(self).await?)
    }

    async fn deploy_find(&mut self, repository: RepositoryId, number: i64) -> Result<Option<Deploy>> {
        let wanted = repositories::erase_at.is_null().and(repositories::deploy_branch.eq(deploys::branch.nullable()));
        let query = deploys::table
            .inner_join(repositories::table)
            .left_join(projects::table.on(projects::id.eq(repositories::project_id)))
            .filter(deploys::repository_id.eq(repository).and(deploys::number.eq(number)))
            .select((
                DeployRow::as_select(),
                wanted.is_not_distinct_from(true),
                (projects::id, projects::org_id, projects::slug, projects::name).nullable(),
            ));
        let found: Option<(DeployRow, bool, Option<DeployProject>)> = query.first(self).await.optional()?;
        Ok(found.map(|(row, is_wanted, project)| {
            let DeployRow { branch, commit_oid: commit, pusher_id: pusher, credential, status, version, message } = row;
            let state = PushDeploy { status, version, message };
            Deploy { repository, number, branch, commit, pusher, credential, state, is_wanted, project }
        }))
    }

    async fn deploy_complete(&mut self, repository: RepositoryId, number: i64, version: i32) -> Result<bool> {
        let earlier = diesel::alias!(deploys as earlier);
        let is_earlier = earlier
            .field(deploys::repository_id)
            .eq(repository)
            .and(earlier.field(deploys::number).lt(number))
            .and(earlier.field(deploys::status).eq(DeployStatus::Pending));
        let wanted = repositories::table.filter(
            repositories::id
                .eq(deploys::repository_id)
                .and(repositories::erase_at.is_null())
                .and(repositories::deploy_branch.eq(deploys::branch.nullable())),
        );
        let pending = deploys::table
            .find((repository, number))
            .filter(deploys::status.eq(DeployStatus::Pending))
            .filter(diesel::dsl::not(diesel::dsl::exists(earlier.filter(is_earlier))))
            .filter(diesel::dsl::exists(wanted));
        let change = (deploys::status.eq(DeployStatus::Deployed), deploys::version.eq(version));
        Ok(diesel::update(pending).set(change).execute(self).await? == 1)
    }

    async fn deploy_reject(&mut self, repository: RepositoryId, number: i64, message: &str) -> Result<()> {
        let pending = deploys::table.find((repository, number)).filter(deploys::status.eq(DeployStatus::Pending));
        let change = (deploys::status.eq(DeployStatus::Rejected), deploys::message.eq(message));
        Prepared(diesel::update(pending).set(change)).execute(self).await?;
        Ok(())
    }

    async fn deploy_trim(&mut self, repository: RepositoryId, number: i64) -> Result<()> {
        let old = deploys::repository_id.eq(repository).and(deploys::number.le(number));
        let ended = old.and(deploys::status.ne(DeployStatus::Pending));
        diesel::delete(deploys::table.filter(ended)).execute(self).await?;
        Ok(())
    }
}
