//! The purge of deleted projects.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{ProjectId, Time};
use store::{BATCH_SIZE, Connection, Prepared, Result};

use crate::schema::projects;

/// The purge of deleted projects on a [`store::Connection`].
pub trait PurgeRepository {
    /// Lists a batch of the projects that were deleted before `before`, with the times of their deletion, oldest first.
    /// Begins after the project `last`.
    async fn project_list_expired(
        &mut self,
        before: Time,
        last: Option<(ProjectId, Time)>,
    ) -> Result<Vec<(ProjectId, Time)>>;

    /// Locks a project that was deleted before `before` until the transaction ends. Returns false without waiting if
    /// another transaction has locked it, or if it was purged.
    async fn project_lock_expired(&mut self, project: ProjectId, before: Time) -> Result<bool>;

    /// Deletes a batch of the deployments of a locked project, and returns their number.
    async fn project_purge_deployments(&mut self, project: ProjectId) -> Result<usize>;

    /// Deletes the row of a locked project that has no deployments and no hostnames.
    async fn project_purge(&mut self, project: ProjectId) -> Result<()>;
}

const PURGE_DEPLOYMENTS: &str = "DELETE FROM projects.deployments WHERE id IN ( \
    SELECT id FROM projects.deployments WHERE project_id = $1 LIMIT $2)";

impl PurgeRepository for Connection {
    async fn project_list_expired(
        &mut self,
        before: Time,
        last: Option<(ProjectId, Time)>,
    ) -> Result<Vec<(ProjectId, Time)>> {
        let mut query = projects::table
            .filter(projects::deleted_at.lt(before))
            .order((projects::deleted_at, projects::id))
            .limit(BATCH_SIZE)
            .select((projects::id, projects::deleted_at.assume_not_null()))
            .into_boxed();
        if let Some((project, deleted_at)) = last {
            let later = projects::deleted_at.gt(deleted_at);
            query = query.filter(later.or(projects::deleted_at.eq(deleted_at).and(projects::id.gt(project))));
        }
        Ok(query.load(self).await?)
    }

    async fn project_lock_expired(&mut self, project: ProjectId, before: Time) -> Result<bool> {
        let query = projects::table.find(project).filter(projects::deleted_at.lt(before)).select(projects::id);
        let locked: Option<ProjectId> = query.for_update().skip_locked().first(self).await.optional()?;
        Ok(locked.is_some())
    }

    async fn project_purge_deployments(&mut self, project: ProjectId) -> Result<usize> {
        // The live version references a deployment, so clear it before the deployments are deleted.
        let live = projects::table.find(project).filter(projects::live_version.is_not_null());
        let clear_live = diesel::update(live).set(projects::live_version.eq(None::<i32>));
        Prepared(clear_live).execute(self).await?;
        let purge = diesel::sql_query(PURGE_DEPLOYMENTS).bind::<Uuid, _>(project).bind::<BigInt, _>(BATCH_SIZE);
        Ok(Prepared(purge).execute(self).await?)
    }

    async fn project_purge(&mut self, project: ProjectId) -> Result<()> {
        diesel::delete(projects::table.find(project)).execute(self).await?;
        Ok(())
    }
}
