//! Exports: dumps that a user requested. They are not generations.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use daemon::error_chain;
use protocol::{ExportReport, FailedExport};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::Service;
use super::error::{BackupError, Result, report_text};
use super::kind::Kind;
use super::records::NewDump;
use crate::database::registry::{Entry, Registry};
use crate::observe::Observer;

/// How often the desired exports are compared with the existing ones.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Starts `export` for each desired export, once, and aborts it when it is no longer desired.
pub(super) async fn run<F>(registry: Registry, export: impl Fn(Entry, String) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut changes = registry.changed();
    let mut started = HashMap::<String, AbortHandle>::new();
    let mut exports = JoinSet::new();
    loop {
        changes.mark_unchanged();
        let entries = registry.entries();
        let desired: HashSet<&String> = entries.iter().flat_map(|entry| &entry.desired.exports).collect();
        started.retain(|id, task| {
            let is_desired = desired.contains(id);
            if !is_desired && !task.is_finished() {
                tracing::info!(export = id, "stopped an export that is no longer desired");
                task.abort();
            }
            is_desired
        });
        for (entry, id) in entries.iter().flat_map(|entry| entry.desired.exports.iter().map(move |id| (entry, id))) {
            started.entry(id.clone()).or_insert_with(|| exports.spawn(export(entry.clone(), id.clone())));
        }
        while let Some(ended) = exports.try_join_next() {
            if let Err(error) = ended
                && !error.is_cancelled()
            {
                tracing::error!(%error, "the task of an export failed");
            }
        }
        // A timeout is not an error: the exports are also compared at this interval.
        let _ = timeout(POLL_INTERVAL, changes.changed()).await;
    }
}

/// Reports that an export failed.
pub(super) async fn report_failure(observer: &Observer, entry: &Entry, id: &str, error: BackupError) {
    let message = report_text(&error.to_string());
    let error = error_chain(error);
    tracing::warn!(project = entry.project, export = id, error, "failed to export a database");
    let report = ExportReport::Failed(FailedExport { id: id.to_owned(), error: message });
    observer.send_acknowledged(&entry.project, id.to_owned(), &report).await;
}

impl Service {
    pub(super) async fn export(&self, entry: &Entry, id: &str) {
        if let Err(error) = self.try_export(entry, id).await {
            report_failure(&self.observer, entry, id, error).await;
        }
    }

    async fn try_export(&self, entry: &Entry, id: &str) -> Result<()> {
        // The export was made before a restart of the node, or before the control plane was restored.
        if self.report_existing(id).await? {
            return Ok(());
        }
        let new = NewDump {
            project: &entry.project,
            database: &entry.desired.id,
            kind: Kind::Export,
            epoch: entry.desired.epoch,
            cause: Some(id),
            days: Kind::Export.days(entry.desired.backup_days),
        };
        let permit = self.slots.acquire_export().await;
        let made = self.make_within(self.programs.limits.export_time, &new, &entry.credentials).await;
        drop(permit);
        let Err(error) = made else { return Ok(()) };
        // The export can be recorded as stored just before its time ends.
        if self.report_existing(id).await? { Ok(()) } else { Err(error) }
    }

    /// Reports the export of a request if it exists. Returns whether it does.
    async fn report_existing(&self, id: &str) -> Result<bool> {
        let existing = self.find_by_cause(id).await?;
        if let Some(dump) = &existing {
            self.report(dump).await;
        }
        Ok(existing.is_some())
    }
}
