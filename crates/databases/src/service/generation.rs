//! Backup generations. The node makes, checks and deletes them; this context numbers and lists them.

use kernel::{Plan, ProjectId};
use store::Connection;

use super::{DAY, Databases, Result};
use crate::model::{DatabaseGenerations, Generation};
use crate::repository::{DatabaseRepository as _, GenerationRecord, GenerationRepository as _, ProjectRepository as _};

/// The number of days for which generations are kept that are not scheduled.
const OTHER_DAYS: u32 = 30;

impl Databases {
    /// Lists the generations of a project, newest first, even if the project has no database.
    ///
    /// # Errors
    /// Returns [`DatabaseError::Store`](crate::DatabaseError::Store).
    pub async fn generations(&self, project: ProjectId) -> Result<DatabaseGenerations> {
        let mut connection = self.store.connection().await?;
        let items = self.listed(&mut connection, project).await?;
        let last_checked_at = connection.generations_checked_at(project).await?;
        Ok(DatabaseGenerations { items, last_checked_at })
    }

    /// Returns the most recent generation of the project's database. Returns `None` if the project has no database, or
    /// the database has no generation.
    ///
    /// # Errors
    /// Returns [`DatabaseError::Store`](crate::DatabaseError::Store).
    pub async fn last_generation(&self, project: ProjectId) -> Result<Option<Generation>> {
        let mut connection = self.store.connection().await?;
        let Some(database) = connection.database_find(project).await? else { return Ok(None) };
        Ok(connection.generation_newest(project, database).await?)
    }

    /// Lists the generations that can be restored.
    pub(super) async fn listed(&self, connection: &mut Connection, project: ProjectId) -> Result<Vec<Generation>> {
        let now = self.store.clock_rng().now();
        let owner = connection.project_plan(project).await?;
        let plan = owner.map_or(Plan::Free, |owner| owner.plan.for_retention(owner.pro_retention_until, now));
        let after = |days: u32| now.plus_seconds(-i64::from(days) * DAY);
        let scheduled_after = after(self.limits.for_plan(plan).backup_days);
        Ok(connection.generation_list(project, scheduled_after, after(OTHER_DAYS)).await?)
    }

    /// Stores a reported generation under the next number of the project, in the transaction that accepts the report. A
    /// node reports generations in the order in which it made them. So the number decides which generation is newer,
    /// and not the clocks of nodes. Storing a generation again is a no-op. Ignores a generation of a database that
    /// belongs to another project.
    ///
    /// Also ignores an unknown generation that is not newer than a purged one of the project. It is probably one that was
    /// purged, which a node reports again after a start, and which must not become the newest.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn generation_report(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        generation: GenerationRecord,
    ) -> store::Result<()> {
        let Some((last, purged_until)) = tx.seq_lock(project).await? else { return Ok(()) };
        let database = generation.database;
        if tx.database_project(database).await?.is_some_and(|owner| owner != project) {
            tracing::warn!(%project, %database, "ignored a generation of a database of another project");
            return Ok(());
        }
        if tx.generation_exists(project, &generation.key).await? {
            return Ok(());
        }
        // The clock of a node may be ahead, which must not extend the retention.
        let created_at = generation.created_at.min(self.store.clock_rng().now());
        if purged_until.is_some_and(|until| created_at <= until) {
            tracing::info!(%project, key = generation.key, "ignored a generation that is not newer than a purged one");
            return Ok(());
        }
        let generation = GenerationRecord { created_at, ..generation };
        tx.seq_set(project, last + 1).await?;
        tx.generation_insert(project, last + 1, generation).await?;
        // The part names the newest generation, from which the node creates a lost database and which it does not
        // delete.
        if tx.database_find(project).await?.is_some() {
            self.publish_observed(tx, project).await?;
        }
        Ok(())
    }
}
