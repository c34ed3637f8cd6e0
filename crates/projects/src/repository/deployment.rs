//! Deployments.

use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_async::RunQueryDsl;
use kernel::{DeploymentId, Digest, Paging, ProjectId, Resource, ResourceSet, Time, UserId};
use store::{Connection, Prepared, Result, newest_first};

use crate::model::{Author, Deployment, DeploymentStatus, Git};
use crate::schema::{deployments, projects};

/// A deployment to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentRecord {
    pub id: DeploymentId,
    pub project: ProjectId,
    pub version: i32,
    pub digest: Digest,
    pub size_bytes: i64,
    /// The resources that the manifest declares.
    pub declares: ResourceSet,
    pub has_worker: bool,
    pub asset_count: i32,
    pub git: Git,
    pub created_by: Author,
    pub created_at: Time,
}

/// Deployments on a [`store::Connection`].
pub trait DeploymentRepository {
    /// Inserts a deployment.
    async fn deployment_insert(&mut self, deployment: &DeploymentRecord) -> Result<()>;

    /// Lists the deployments of a project, newest first.
    async fn deployment_list(&self, project: ProjectId, paging: &Paging<i32>) -> Result<Vec<Deployment>>;

    /// Records a reported status. Ignores a crash or failure of a retired deployment. The status `serving` also retires
    /// the other deployments that are pending, serving or crashed, except the live one, which may still be starting.
    /// Failed deployments stay `failed`.
    async fn deployment_set_status(
        &mut self,
        project: ProjectId,
        version: i32,
        status: DeploymentStatus,
        message: Option<&str>,
    ) -> Result<()>;

    /// Finds a deployment by its version.
    async fn deployment_find(&self, project: ProjectId, version: i32) -> Result<Option<Deployment>>;

    /// Returns the time at which this version of a project was created, or `None` if there is no such version.
    async fn deployment_created_at(&mut self, project: ProjectId, version: i32) -> Result<Option<Time>>;
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = deployments)]
pub(super) struct DeploymentRow {
    id: DeploymentId,
    project_id: ProjectId,
    version: i32,
    digest: Digest,
    size_bytes: i64,
    declares: Vec<Resource>,
    has_worker: bool,
    asset_count: i32,
    git_commit: Option<String>,
    git_message: Option<String>,
    git_branch: Option<String>,
    git_dirty: Option<bool>,
    created_by: UserId,
    created_by_subject: String,
    created_at: Time,
    status: DeploymentStatus,
    status_message: Option<String>,
}

impl DeploymentRepository for Connection {
    async fn deployment_insert(&mut self, deployment: &DeploymentRecord) -> Result<()> {
        let row = DeploymentRow::from(deployment.clone());
        diesel::insert_into(deployments::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn deployment_list(&self, project: ProjectId, paging: &Paging<i32>) -> Result<Vec<Deployment>> {
        let all =
            deployments::table.inner_join(projects::table).select((DeploymentRow::as_select(), projects::live_version));
        let page = newest_first!(all, deployments::project_id = project, deployments::version, paging);
        let rows = page.load::<(DeploymentRow, Option<i32>)>(&mut &*self).await?;
        Ok(rows.into_iter().map(|(row, live)| row.into_deployment(live)).collect())
    }

    async fn deployment_set_status(
        &mut self,
        project: ProjectId,
        version: i32,
        status: DeploymentStatus,
        message: Option<&str>,
    ) -> Result<()> {
        let reported = deployments::project_id.eq(project).and(deployments::version.eq(version));
        let unchanged = deployments::status.eq(status).and(deployments::status_message.is_not_distinct_from(message));
        let ends = matches!(status, DeploymentStatus::Crashed | DeploymentStatus::Failed);
        let after_retirement = deployments::status.eq(DeploymentStatus::Retired).and(ends.into_sql::<Bool>());
        let changed = deployments::table.filter(reported).filter(diesel::dsl::not(unchanged.or(after_retirement)));
        let new_status = (deployments::status.eq(status), deployments::status_message.eq(message));
        Prepared(diesel::update(changed).set(new_status)).execute(self).await?;
        if status == DeploymentStatus::Serving {
            let unretired = [DeploymentStatus::Pending, DeploymentStatus::Serving, DeploymentStatus::Crashed];
            let live = projects::table.find(project).select(projects::live_version).single_value();
            let others = deployments::project_id
                .eq(project)
                .and(deployments::status.eq_any(unretired))
                .and(deployments::version.ne(version))
                .and(live.is_distinct_from(deployments::version.nullable()));
            let retire =
                (deployments::status.eq(DeploymentStatus::Retired), deployments::status_message.eq(None::<String>));
            diesel::update(deployments::table.filter(others)).set(retire).execute(self).await?;
        }
        Ok(())
    }

    async fn deployment_find(&self, project: ProjectId, version: i32) -> Result<Option<Deployment>> {
        let found = deployments::table
            .inner_join(projects::table)
            .filter(deployments::project_id.eq(project).and(deployments::version.eq(version)))
            .select((DeploymentRow::as_select(), projects::live_version))
            .first::<(DeploymentRow, Option<i32>)>(&mut &*self)
            .await
            .optional()?;
        Ok(found.map(|(row, live)| row.into_deployment(live)))
    }

    async fn deployment_created_at(&mut self, project: ProjectId, version: i32) -> Result<Option<Time>> {
        let found =
            deployments::table.filter(deployments::project_id.eq(project).and(deployments::version.eq(version)));
        Ok(found.select(deployments::created_at).first(self).await.optional()?)
    }
}

impl DeploymentRow {
    pub(super) fn into_deployment(self, live: Option<i32>) -> Deployment {
        Deployment {
            id: self.id,
            version: self.version,
            digest: self.digest,
            size_bytes: self.size_bytes,
            live: live == Some(self.version),
            status: self.status,
            status_message: self.status_message,
            git: Git {
                commit: self.git_commit,
                message: self.git_message,
                branch: self.git_branch,
                dirty: self.git_dirty,
            },
            declares: ResourceSet::from_fn(|resource| self.declares.contains(&resource)),
            has_worker: self.has_worker,
            asset_count: self.asset_count,
            created_by: Author { user_id: self.created_by, subject: self.created_by_subject },
            created_at: self.created_at,
        }
    }
}

impl From<DeploymentRecord> for DeploymentRow {
    fn from(record: DeploymentRecord) -> Self {
        let Git { commit, message, branch, dirty } = record.git;
        Self {
            id: record.id,
            project_id: record.project,
            version: record.version,
            digest: record.digest,
            size_bytes: record.size_bytes,
            declares: record.declares.iter().collect(),
            has_worker: record.has_worker,
            asset_count: record.asset_count,
            git_commit: commit,
            git_message: message,
            git_branch: branch,
            git_dirty: dirty,
            created_by: record.created_by.user_id,
            created_by_subject: record.created_by.subject,
            created_at: record.created_at,
            status: DeploymentStatus::Pending,
            status_message: None,
        }
    }
}
