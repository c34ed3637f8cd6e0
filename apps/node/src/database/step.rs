//! Long work on one database: the phases of an operation, a recovery, a removal. Every step can be repeated after the
//! node was killed at any point.

use std::sync::Arc;

use anyhow::Context as _;
use daemon::error_chain;
use protocol::{
    CompletedPhase, Database, DatabaseOperation, DatabaseOperationKind, FailedOperation, GenerationKind, GenerationRef,
    GenerationReport, OperationPhase, OperationReport,
};

use super::admin::AdminConnection;
use super::backup::{BackupError, report_text};
use super::create::{SizeLimits, exists, is_prepared, prepare};
use super::names::{self, Names};
use super::server::Credentials;
use super::sessions::drain;
use super::tables::DatabaseRow;
use super::time::is_plausible;
use super::{Shared, swap, tables};

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Creates the missing database from a generation.
    Recover { database: String, generation: GenerationRef },
    /// Executes the current phase of an operation.
    Phase(DatabaseOperation),
    /// Prepares the new database of a restore again, because the prepared one is missing when the restore commits.
    Prepare(DatabaseOperation),
    /// Makes the final generation of a database that is not desired.
    SealRemoved { database: String, epoch: i64, removal: String },
    /// Makes a tombstone of a database that is not desired.
    Remove { database: String },
}

/// The database that a step works on.
pub struct Target {
    pub shared: Arc<Shared>,
    pub project: String,
    pub names: Names,
    pub epoch: i64,
    /// The limits of the database that the step dumps or restores.
    pub limits: SizeLimits,
    /// The login of backups.
    pub backups: Arc<Credentials>,
    /// Whether attempts of the step have failed for a while in this process.
    pub is_repeated: bool,
}

impl Step {
    /// Returns the step that is due for a desired database. A completed phase stays due until the part changes.
    pub async fn due(
        client: &AdminConnection,
        project: &str,
        desired: &Database,
        row: &DatabaseRow,
        is_missing: bool,
    ) -> anyhow::Result<Option<Self>> {
        let operation = desired.operation.as_ref();
        if let Some(operation) = operation.filter(|operation| operation.phase == OperationPhase::Committing) {
            let is_restored = row.restored_operation.as_ref() == Some(&operation.id);
            if operation.kind == DatabaseOperationKind::RestoreGeneration
                && !is_restored
                && !is_prepared(client, project, &operation.id).await?
            {
                return Ok(Some(Self::Prepare(operation.clone())));
            }
        } else if is_missing
            && operation.is_none_or(|operation| operation.phase == OperationPhase::Reactivating)
            && let Some(generation) = &desired.source
        {
            return Ok(Some(Self::Recover { database: desired.id.clone(), generation: generation.clone() }));
        }
        let operation = operation.filter(|operation| operation.phase != OperationPhase::Reactivating);
        Ok(operation.map(|operation| Self::Phase(operation.clone())))
    }

    /// Executes the step. Returns the report of a phase.
    pub async fn run(&self, target: &Target) -> anyhow::Result<Option<OperationReport>> {
        match self {
            Self::Recover { database, generation } => target.recover(database, generation).await.map(|()| None),
            Self::Phase(operation) => target.execute(operation).await.map(Some),
            Self::Prepare(operation) => target.prepare(operation, target.limits.without_maximum()).await.map(|()| None),
            Self::SealRemoved { database, epoch, removal } => {
                target.seal_removed(database, *epoch, removal).await.map(|()| None)
            }
            Self::Remove { .. } => target.remove().await.map(|()| None),
        }
    }
}

impl Target {
    async fn recover(&self, database: &str, generation: &GenerationRef) -> anyhow::Result<()> {
        let Self { shared, project, names, limits, .. } = self;
        tracing::warn!(project, database, key = generation.key, "a database is missing; restoring a generation");
        prepare(shared, project, names, limits.without_maximum(), database, generation).await?;
        self.drain_prepared(database).await?;
        let mut client = shared.admin.connect().await?;
        swap::replace(&mut client, project, names, database, Some(&generation.key)).await?;
        tracing::warn!(project, database, key = generation.key, "a missing database was restored");
        Ok(())
    }

    /// Executes a phase. A permanent failure of the phase `sealing` is returned as a report, not as an error:
    /// the operation then ends without a change.
    async fn execute(&self, operation: &DatabaseOperation) -> anyhow::Result<OperationReport> {
        let DatabaseOperation { id, kind, phase, .. } = operation;
        let project = &self.project;
        tracing::info!(project, operation = id, ?kind, ?phase, "executing a phase");
        let executed = match phase {
            OperationPhase::Draining => drain(&self.shared.admin, &self.names.database()).await.map(|()| None),
            OperationPhase::Sealing => self.seal(operation).await,
            OperationPhase::Committing => self.commit(operation).await.map(|()| None),
            // This phase is complete when the logins are open.
            OperationPhase::Reactivating => Ok(None),
        };
        match executed {
            Ok(generation) => {
                tracing::info!(project, operation = id, ?kind, ?phase, "completed a phase");
                Ok(OperationReport::Completed(CompletedPhase { id: id.clone(), completed: *phase, generation }))
            }
            Err(error) => {
                let permanent = BackupError::permanent(&error).filter(|_| *phase == OperationPhase::Sealing);
                let Some(text) = permanent.map(ToString::to_string) else { return Err(error) };
                tracing::error!(project, operation = id, ?kind, error = format!("{error:#}"), "an operation failed");
                self.shared.metrics.count_operation(*kind, "failed");
                Ok(OperationReport::Failed(FailedOperation { id: id.clone(), error: report_text(&text) }))
            }
        }
    }

    async fn seal(&self, operation: &DatabaseOperation) -> anyhow::Result<Option<GenerationReport>> {
        let kind = match operation.kind {
            DatabaseOperationKind::RestoreGeneration => GenerationKind::PreRestore,
            DatabaseOperationKind::Delete => GenerationKind::Final,
        };
        let Self { shared, project, epoch, backups, limits, .. } = self;
        // The control plane was restored from a backup and repeats the phase. The database now has the content of the
        // restored generation, which must not be sealed in place of the replaced content.
        if self.is_replaced(operation).await? {
            return Ok(shared.backups.find_sealed(kind, &operation.id).await?);
        }
        // A missing database has no content, and must not prevent the restore of a generation.
        let is_missing = !exists(&shared.admin.connect().await?, &self.names.database()).await?;
        let generation = match is_missing {
            true => shared.backups.find_sealed(kind, &operation.id).await?,
            false => shared.backups.seal(project, (*epoch, limits.plan_bytes), backups, kind, &operation.id).await?,
        };
        if operation.kind == DatabaseOperationKind::RestoreGeneration {
            self.prepare(operation, self.limits).await?;
        }
        Ok(generation)
    }

    /// Returns whether an operation has replaced the database.
    async fn is_replaced(&self, operation: &DatabaseOperation) -> anyhow::Result<bool> {
        let row = tables::find(&*self.shared.admin.connect().await?, &self.project).await?;
        Ok(row.and_then(|row| row.restored_operation).as_ref() == Some(&operation.id))
    }

    async fn prepare(&self, operation: &DatabaseOperation, limits: SizeLimits) -> anyhow::Result<()> {
        let generation = operation.generation.as_ref().context("the restore names no generation")?;
        let Self { shared, project, names, .. } = self;
        prepare(shared, project, names, limits, &operation.id, generation).await
    }

    async fn commit(&self, operation: &DatabaseOperation) -> anyhow::Result<()> {
        if operation.kind == DatabaseOperationKind::Delete {
            self.remove().await?;
            self.shared.metrics.count_operation(operation.kind, "done");
            return Ok(());
        }
        let Self { shared, project, names, .. } = self;
        if self.is_replaced(operation).await? {
            return Ok(());
        }
        drain(&shared.admin, &names.database()).await?;
        self.drain_prepared(&operation.id).await?;
        let mut client = shared.admin.connect().await?;
        anyhow::ensure!(is_prepared(&client, project, &operation.id).await?, "the new database is not complete");
        swap::replace(&mut client, project, names, &operation.id, None).await?;
        tracing::info!(project, operation = operation.id, "replaced the database");
        Ok(())
    }

    /// Ends the sessions in the prepared database. The program that restored it has ended, but tenant code may have
    /// left a session.
    async fn drain_prepared(&self, cause: &str) -> anyhow::Result<()> {
        let name = names::prepared(cause).context("the id is malformed")?;
        drain(&self.shared.admin, &name).await
    }

    async fn seal_removed(&self, database: &str, epoch: i64, removal: &str) -> anyhow::Result<()> {
        let (shared, project) = (&self.shared, &self.project);
        let limits = (epoch, self.limits.plan_bytes);
        let sealed = shared.backups.seal(project, limits, &self.backups, GenerationKind::Final, removal).await;
        match sealed {
            Ok(generation) => {
                tracing::info!(project, database, is_sealed = generation.is_some(), "sealed a removed database");
                Ok(())
            }
            Err(error) => {
                if !error.is_permanent() && !self.must_end_seals().await? {
                    return Err(error.into());
                }
                // The removal continues without a final generation. The tombstone still contains the data.
                let error = error_chain(error);
                tracing::error!(project, database, error, "failed to seal a removed database");
                Ok(())
            }
        }
    }

    /// Records a failed attempt to seal a removed database. Returns whether the attempts end, after a day. Until then, a
    /// failure can be an outage of the store. The node may have been down for most of this day, so the failures soon after
    /// a start do not end the attempts.
    async fn must_end_seals(&self) -> anyhow::Result<bool> {
        let client = self.shared.admin.connect().await?;
        Ok(is_plausible(&client, &self.shared.clock).await?
            && tables::record_failed_seal(&*client, &self.project).await?
            && self.is_repeated)
    }

    /// Makes the database a tombstone.
    async fn remove(&self) -> anyhow::Result<()> {
        let Self { shared, project, names, .. } = self;
        drain(&shared.admin, &names.database()).await?;
        // First record that the generations must be kept, and then delete the row of the database: after a kill, this
        // step is repeated only if the row still exists.
        shared.backups.removed(project).await?;
        swap::remove(&mut shared.admin.connect().await?, project, names).await?;
        tracing::info!(project, database = names.database(), "removed a database");
        Ok(())
    }
}
