//! The purge of deleted projects.

use kernel::audit::{Actor, Event};
use kernel::{ProjectId, Time, error_chain};
use serde_json::json;
use store::{Connection, Outcome, is_full_batch};

use super::{Projects, RETENTION_SECONDS, Result};
use crate::repository::PurgeRepository as _;

impl Projects {
    /// Purges the projects that were deleted more than 30 days ago, each in its own transactions, and returns their
    /// number. Keeps their bundles, which other projects may use. If a project cannot be purged, logs the error and
    /// continues with the others.
    ///
    /// # Errors
    /// Returns [`ProjectError::Store`](crate::ProjectError::Store): the last error of a project, or that of the list.
    pub async fn purge(&self) -> Result<usize> {
        let before = self.store.clock_rng().now().plus_seconds(-RETENTION_SECONDS);
        let (mut purged, mut result, mut last) = (0, Ok(()), None);
        loop {
            let expired = self.store.connection().await?.project_list_expired(before, last).await?;
            for (project, _) in &expired {
                match self.purge_project(*project, before).await {
                    Ok(is_purged) => purged += usize::from(is_purged),
                    Err(error) => {
                        tracing::warn!(%project, error = %error_chain(&error), "failed to purge a project");
                        result = Err(error);
                    }
                }
            }
            last = expired.last().copied();
            if !is_full_batch(expired.len()) {
                return result.map(|()| purged);
            }
        }
    }

    /// Purges a project. Returns false if another server is purging it, or has purged it.
    async fn purge_project(&self, project: ProjectId, before: Time) -> Result<bool> {
        // The number of some rows has no limit. Delete these in batches, so that no statement reaches its timeout.
        loop {
            match self.purge_batch(project, before).await? {
                None => return Ok(false),
                Some(true) => {}
                Some(false) => break,
            }
        }
        self.store
            .transaction(&Actor::service("purge"), async |tx: &mut Connection| {
                if !tx.project_lock_expired(project, before).await? {
                    return Ok(Outcome::Unchanged(false));
                }
                self.placements.purge(tx, project).await?;
                tx.project_purge(project).await?;
                Ok(Outcome::Changed(true, Event::of_platform("project.purge", project, json!({}))))
            })
            .await
    }

    /// Deletes a batch of the rows of a project, and returns whether more can be left. Returns `None` if another server
    /// is purging the project, or has purged it.
    async fn purge_batch(&self, project: ProjectId, before: Time) -> Result<Option<bool>> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                if !tx.project_lock_expired(project, before).await? {
                    return Ok(None);
                }
                let deployments = tx.project_purge_deployments(project).await?;
                let others = self.placements.purge_batch(tx, project).await?;
                Ok(Some(is_full_batch(deployments) || others))
            })
            .await
    }
}
