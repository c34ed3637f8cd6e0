//! Receives the reports about databases. Drops a report with a malformed id or time, or with the key of another
//! project, because repeating it would not correct it.

use async_trait::async_trait;
use convergence::ReportReceiver;
use databases::{DatabaseExport, Databases, Observation, Progress};
use kernel::ProjectId;
use protocol::{
    CompletedPhase, DatabaseReport, DeletedBackupsReport, ExportReport, FailedExport, FailedOperation,
    GenerationReport, OperationReport, StoredExport,
};
use store::Connection;

use super::database_values::{bytes, generation, is_key_of, phase, time};

pub(super) struct ReportsPort(pub(super) Databases);

#[async_trait]
impl ReportReceiver<DatabaseReport> for ReportsPort {
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: DatabaseReport) -> store::Result<()> {
        match observation(project, report) {
            Some((observed, progress)) => self.0.observe(tx, project, observed, progress).await,
            None => dropped(project, "database"),
        }
    }
}

#[async_trait]
impl ReportReceiver<GenerationReport> for ReportsPort {
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: GenerationReport) -> store::Result<()> {
        match generation(project, report) {
            Some(generation) => self.0.generation_report(tx, project, generation).await,
            None => dropped(project, "generation"),
        }
    }
}

#[async_trait]
impl ReportReceiver<ExportReport> for ReportsPort {
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: ExportReport) -> store::Result<()> {
        let (id, result) = match report {
            ExportReport::Stored(StoredExport { id, key, size_bytes, created_at }) => {
                let created_at = time(&created_at).filter(|_| is_key_of(project, &key));
                let Some(created_at) = created_at else { return dropped(project, "export") };
                (id, Ok(DatabaseExport { key, size_bytes: bytes(size_bytes), created_at }))
            }
            ExportReport::Failed(FailedExport { id, error }) => (id, Err(error)),
        };
        match id.parse() {
            Ok(export) => self.0.export_report(tx, project, export, result).await,
            Err(_) => dropped(project, "export"),
        }
    }
}

#[async_trait]
impl ReportReceiver<DeletedBackupsReport> for ReportsPort {
    async fn receive(&self, tx: &mut Connection, project: ProjectId, _: DeletedBackupsReport) -> store::Result<()> {
        self.0.backups_deleted(tx, project).await
    }
}

fn observation(project: ProjectId, report: DatabaseReport) -> Option<(Observation, Option<Progress>)> {
    let DatabaseReport {
        database,
        revision,
        ready,
        size_bytes,
        read_only,
        fresh_at,
        checked_at,
        backup_error,
        recovered_from,
        operation,
    } = report;
    let observed = Observation {
        database: database.parse().ok()?,
        revision,
        ready,
        size_bytes: bytes(size_bytes),
        read_only,
        fresh_at: optional_time(fresh_at)?,
        checked_at: optional_time(checked_at)?,
        backup_error,
        recovered_from,
    };
    let progress = match operation {
        None => None,
        Some(OperationReport::Completed(CompletedPhase { id, completed, generation: sealed })) => {
            let generation = match sealed {
                Some(sealed) => Some(generation(project, sealed)?),
                None => None,
            };
            Some(Progress::Completed { operation: id.parse().ok()?, phase: phase(completed), generation })
        }
        Some(OperationReport::Failed(FailedOperation { id, error })) => {
            Some(Progress::Failed { operation: id.parse().ok()?, reason: error })
        }
    };
    Some((observed, progress))
}

/// Parses a time that may be null. Returns `None` if it is malformed.
fn optional_time(text: Option<String>) -> Option<Option<kernel::Time>> {
    match text {
        None => Some(None),
        Some(text) => time(&text).map(Some),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the result of the receivers")]
fn dropped(project: ProjectId, kind: &'static str) -> store::Result<()> {
    tracing::warn!(%project, kind, "dropped a report with a malformed id, key or time");
    Ok(())
}
