//! Reports on stored dumps, repeated until the control plane has accepted them. After a start of the node and after a
//! restore of the control plane, all dumps are reported again, because a restored control plane may lack dumps that it
//! had accepted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use daemon::error_chain;
use futures_util::{StreamExt as _, stream};
use protocol::{ExportReport, StoredExport};
use tokio::time::timeout;

use super::Service;
use super::error::Result;
use super::kind::Kind;
use super::records::{Dump, MAX_UNREPORTED};
use crate::clock::rfc3339;

/// How often unreported dumps are read again.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// The largest number of reports that wait for acceptance at the same time.
const CONCURRENT_REPORTS: usize = 50;

/// Reports the stored dumps that the control plane has not accepted.
pub(super) async fn run(service: Arc<Service>) {
    loop {
        if let Err(error) = service.report_stored().await {
            let error = error_chain(error);
            tracing::warn!(error, "failed to read the dumps to report");
        }
        // A timeout is not an error: unreported dumps are also read at this interval.
        let _ = timeout(POLL_INTERVAL, service.stored.notified()).await;
    }
}

impl Service {
    async fn report_stored(self: &Arc<Self>) -> Result<()> {
        if self.reports_again.swap(false, Ordering::Relaxed)
            && let Err(error) = self.unmark_reported().await
        {
            self.reports_again.store(true, Ordering::Relaxed);
            return Err(error);
        }
        let dumps = self.unreported().await?;
        self.metrics.unreported.set(i64::try_from(dumps.len()).unwrap_or(i64::MAX));
        let report = |dump: Dump| {
            let service = Arc::clone(self);
            async move {
                let is_accepted = service.report(&dump).await;
                if is_accepted {
                    service.metrics.unreported.dec();
                }
                is_accepted
            }
        };
        let reports: Vec<_> = dumps.into_iter().map(report).collect();
        let is_last = reports.len() < MAX_UNREPORTED;
        let accepted: Vec<bool> = stream::iter(reports).buffer_unordered(CONCURRENT_REPORTS).collect().await;
        if !is_last && accepted.contains(&true) {
            self.stored.notify_one();
        }
        Ok(())
    }

    /// Reports a dump. Returns whether the acceptance is recorded.
    pub(super) async fn report(&self, dump: &Dump) -> bool {
        let accepted = match (dump.kind, &dump.cause) {
            (Kind::Generation(kind), _) => {
                let report = dump.report(kind);
                self.observer.send_acknowledged(&dump.project, report.key.clone(), &report).await
            }
            (Kind::Export, Some(id)) => self.report_export(dump, id).await,
            (Kind::Export, None) => true,
        };
        if accepted && let Err(error) = self.mark_reported(&dump.object.key).await {
            let error = error_chain(error);
            tracing::warn!(key = dump.object.key, error, "failed to record an accepted report; it is sent again");
            return false;
        }
        accepted
    }

    async fn report_export(&self, dump: &Dump, id: &str) -> bool {
        let report = ExportReport::Stored(StoredExport {
            id: id.to_owned(),
            key: dump.object.key.clone(),
            size_bytes: dump.object.size_bytes,
            created_at: rfc3339(dump.created_at),
        });
        self.observer.send_acknowledged(&dump.project, id.to_owned(), &report).await
    }
}
