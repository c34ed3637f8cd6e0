//! Deliveries of received mail to the workers of this node.
//!
//! The control plane leases received mail to the node. The node runs `email()` and reports the result before the lease
//! ends. If a result is not reported, the control plane leases the mail again, so each mail is handled at least once. Each
//! claim names the mails in progress, so that the leases of a killed process or of a lost response end early.
//!
//! The control plane leases only a few mails of a project at the same time. So a worker that does not return cannot
//! prevent calls to the workers of other projects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::{MailClaim, MailDelivered, MailDelivery};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use super::handler::Handlers;
use super::metrics::MailMetrics;
use crate::client::{Core, Outcome};
use crate::routes::Routes;
use daemon::Backoff;

/// The largest number of mails in a response of the control plane.
const MAX_BATCH: u32 = 20;
/// The largest number of mails that the node handles at the same time.
const MAX_IN_PROGRESS: usize = 500;
/// The lease of a mail ([`MailDelivery`]). It begins when the control plane sends the mail.
const LEASE: Duration = Duration::from_secs(5 * 60);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The pause after a response without mail.
const PAUSE: Duration = Duration::from_millis(250);

/// The state that all deliveries share.
struct Deliveries {
    core: Core,
    handlers: Handlers,
    metrics: MailMetrics,
}

/// Delivers received mail while a project of the node has a mail address (`have_email`).
pub async fn deliver(
    core: Core,
    mut have_email: watch::Receiver<bool>,
    routes: watch::Receiver<Arc<Routes>>,
    metrics: MailMetrics,
) {
    let handlers = Handlers::new(core.clone(), routes);
    let deliveries = Arc::new(Deliveries { core, handlers, metrics });
    let (permits, mut tasks) = (Arc::new(Semaphore::new(MAX_IN_PROGRESS)), JoinSet::new());
    // The ids of the mails in progress.
    let mut in_progress = HashMap::new();
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    while have_email.wait_for(|have_email| *have_email).await.is_ok() {
        let Ok(mut permits) = Arc::clone(&permits).acquire_many_owned(MAX_BATCH).await else { return };
        while let Some(ended) = tasks.try_join_next_with_id() {
            in_progress.remove(&ended.as_ref().map_or_else(JoinError::id, |(task, ())| *task));
            if let Err(error) = ended {
                tracing::error!(%error, "the delivery of a mail failed");
            }
        }
        let claim = MailClaim { in_progress: in_progress.values().cloned().collect() };
        let mails = match deliveries.core.claim_mail(&claim).await {
            Ok(claimed) => claimed.deliveries,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "failed to claim received mail; retrying");
                sleep(backoff.next_delay()).await;
                continue;
            }
        };
        backoff.reset();
        if mails.is_empty() {
            sleep(PAUSE).await;
        }
        for mail in mails {
            let id = mail.id.clone();
            let task = tasks.spawn(Arc::clone(&deliveries).process(mail, permits.split(1)));
            in_progress.insert(task.id(), id);
        }
    }
}

impl Deliveries {
    /// Calls `email()` for a mail, and reports the result until the control plane accepts it or the lease ends.
    async fn process(self: Arc<Self>, mail: MailDelivery, _permit: Option<OwnedSemaphorePermit>) {
        let claimed_at = Instant::now();
        let result = self.handlers.call(&mail).await;
        self.metrics.count_delivery(&result);
        let MailDelivery { id, project, attempt, .. } = mail;
        let delivered = MailDelivered::new(attempt, result);
        let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
        while claimed_at.elapsed() < LEASE {
            match self.core.report_mail(&id, &delivered).await {
                Ok(Outcome::Accepted(())) => return,
                Ok(Outcome::Rejected) => {
                    tracing::warn!(id, project, "the control plane rejected the result of a received mail");
                    return;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(id, project, error, "failed to report the result of a received mail; retrying");
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }
}
