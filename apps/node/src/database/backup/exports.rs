//! Exports: dumps that a user requested. They are not generations.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use daemon::error_chain;
use protocol::{ExportReport, FailedExport};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Service;
use super::error::{Result, report_text};
use super::kind::Kind;
use super::records::NewDump;
use crate::database::registry::Entry;

/// How often the desired exports are compared with the existing ones.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Makes the desired exports, each once.
pub(super) async fn run(service: Arc<Service>) {
    let mut changes = service.registry.changed();
    let mut started = HashSet::new();
    let mut exports = JoinSet::new();
    loop {
        changes.mark_unchanged();
        let entries = service.registry.entries();
        let desired: HashSet<&String> = entries.iter().flat_map(|entry| &entry.desired.exports).collect();
        started.retain(|id| desired.contains(id));
        for (entry, id) in entries.iter().flat_map(|entry| entry.desired.exports.iter().map(move |id| (entry, id))) {
            if started.insert(id.clone()) {
                let (service, entry, id) = (Arc::clone(&service), entry.clone(), id.clone());
                exports.spawn(async move { service.export(&entry, &id).await });
            }
        }
        while let Some(ended) = exports.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "the task of an export failed");
            }
        }
        // A timeout is not an error: the exports are also compared at this interval.
        let _ = timeout(POLL_INTERVAL, changes.changed()).await;
    }
}

impl Service {
    async fn export(&self, entry: &Entry, id: &str) {
        let Err(error) = self.try_export(entry, id).await else { return };
        let message = report_text(&error.to_string());
        let error = error_chain(error);
        tracing::warn!(project = entry.project, export = id, error, "failed to export a database");
        let report = ExportReport::Failed(FailedExport { id: id.to_owned(), error: message });
        self.observer.send_acknowledged(&entry.project, id.to_owned(), &report).await;
    }

    async fn try_export(&self, entry: &Entry, id: &str) -> Result<()> {
        // The export was made before a restart of the node, or before the control plane was restored.
        if let Some(dump) = self.find_by_cause(id).await? {
            self.report(&dump).await;
            return Ok(());
        }
        let _permit = self.slots.acquire_urgent().await;
        let new = NewDump {
            project: &entry.project,
            database: &entry.desired.id,
            kind: Kind::Export,
            epoch: entry.desired.epoch,
            cause: Some(id),
            days: Kind::Export.days(entry.desired.backup_days),
        };
        self.make(&new, &entry.credentials).await.map(drop)
    }
}
