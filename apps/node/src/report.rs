//! Sending of observations to the control plane.
//!
//! Batches are sent one at a time and retried until the control plane responds. Pending observations keep only the
//! newest one per subject, so memory is bounded by the number of subjects during an outage. A restart loses pending
//! observations; the reconciler reports the served state at startup. A sender that must not lose a report waits for its
//! acceptance, and sends it again after a restart.

use std::collections::HashMap;
use std::pin::pin;

use daemon::Backoff;
use protocol::{Batch, Receipt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, sleep};

use crate::client::{Core, Outcome};
use crate::clock::since_epoch;
use crate::observe::Observation;

/// Limits of one batch.
const MAX_BATCH_REPORTS: usize = 50;
const MAX_BATCH_BYTES: usize = 48 * 1024;
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Sends `observations` until the channel closes. `last_batch` is the last batch number that the control plane
/// received.
pub async fn report(
    core: Core,
    mut observations: mpsc::UnboundedReceiver<Observation>,
    mut last_batch: watch::Receiver<Option<i64>>,
) {
    let mut pending = PendingReports::default();
    // The control plane's first response contains the number of the last batch. New numbers are greater.
    let mut last = {
        let known = async { last_batch.wait_for(Option::is_some).await.ok().and_then(|last| *last) };
        let Some(last) = pending.collect_until(&mut observations, known).await else { return };
        last
    };
    loop {
        if pending.is_empty() {
            let Some(first) = observations.recv().await else { return };
            pending.add(first);
        }
        let batch = pending.take_batch();
        last = pending.collect_until(&mut observations, send(&core, last, batch)).await;
    }
}

/// Sends a batch until the control plane accepts it, and returns the last batch number. Splits a rejected batch in
/// half, down to single reports; a rejected single report is dropped.
async fn send(core: &Core, mut last: i64, observations: Vec<Observation>) -> i64 {
    let mut parts = vec![observations];
    while let Some(mut part) = parts.pop() {
        match deliver(core, last, &part).await {
            Ok(accepted) => {
                last = accepted;
                for sender in part.into_iter().filter_map(|observation| observation.accepted) {
                    // This fails if the sender no longer waits.
                    let _ = sender.send(());
                }
            }
            Err(Rejected) if part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            Err(Rejected) => tracing::error!(?part, "the control plane rejected a report; dropping it"),
        }
    }
    last
}

/// The control plane rejected a batch permanently.
struct Rejected;

async fn deliver(core: &Core, last: i64, observations: &[Observation]) -> Result<i64, Rejected> {
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    let reports = observations.iter().map(|observation| observation.report.clone()).collect();
    let mut batch = Batch { batch: next_batch_number(last), reports };
    loop {
        match core.report(&batch).await {
            Ok(Outcome::Accepted(Receipt { batch: last })) if last <= batch.batch => return Ok(batch.batch),
            // An earlier process of this node used a higher number, so the control plane ignored this batch.
            Ok(Outcome::Accepted(Receipt { batch: last })) => batch.batch = next_batch_number(last),
            Ok(Outcome::Rejected) => return Err(Rejected),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "failed to send reports; retrying");
                sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// Returns the next batch number. It is at least the current time in milliseconds, so that it exceeds the numbers of an
/// earlier process that was killed.
fn next_batch_number(last: i64) -> i64 {
    (last + 1).max(i64::try_from(since_epoch().as_millis()).unwrap_or_default())
}

/// Pending observations, oldest first.
#[derive(Default)]
struct PendingReports {
    order: Vec<Key>,
    newest: HashMap<Key, Observation>,
}

/// Project, kind and subject.
type Key = (String, String, String);

impl PendingReports {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn add(&mut self, observation: Observation) {
        let Observation { subject, report, .. } = &observation;
        let key = (report.project.clone(), report.kind.clone(), subject.clone());
        if self.newest.insert(key.clone(), observation).is_some() {
            self.order.retain(|other| *other != key);
        }
        self.order.push(key);
    }

    /// Collects observations until `done` completes.
    async fn collect_until<T>(
        &mut self,
        observations: &mut mpsc::UnboundedReceiver<Observation>,
        done: impl Future<Output = T>,
    ) -> T {
        let mut done = pin!(done);
        loop {
            tokio::select! {
                done = &mut done => return done,
                Some(observation) = observations.recv() => self.add(observation),
            }
        }
    }

    /// Removes as many observations as fit into one batch.
    fn take_batch(&mut self) -> Vec<Observation> {
        let mut left = MAX_BATCH_BYTES;
        let fits = |key: &&Key| {
            let size = self.newest.get(*key).map_or(0, Observation::size);
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        };
        let count = self.order.iter().take(MAX_BATCH_REPORTS).take_while(fits).count().max(1).min(self.order.len());
        self.order.drain(..count).filter_map(|key| self.newest.remove(&key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use protocol::{DeploymentReport, DeploymentState, Report, ReportKind};
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Usage(u64);

    impl ReportKind for Usage {
        const NAME: &'static str = "usage";
    }

    #[test]
    fn only_the_newest_report_per_subject_is_sent() {
        let seen = |project, version, state| Observation::deployment(project, version, state, None).unwrap();
        let usage = |bytes| Observation::new("a", "1".to_owned(), &Usage(bytes)).unwrap();
        let mut pending = PendingReports::default();
        for observation in [
            seen("a", 1, DeploymentState::Serving),
            seen("b", 1, DeploymentState::Failed),
            usage(1),
            seen("a", 1, DeploymentState::Crashed),
            seen("a", 2, DeploymentState::Serving),
            usage(2),
        ] {
            pending.add(observation);
        }
        let report = |project: &str, version, state| {
            Report::new(project.to_owned(), &DeploymentReport { version, state, message: None }).unwrap()
        };
        let expected = [
            report("b", 1, DeploymentState::Failed),
            report("a", 1, DeploymentState::Crashed),
            report("a", 2, DeploymentState::Serving),
            Report::new("a".to_owned(), &Usage(2)).unwrap(),
        ];
        let batch: Vec<Report> = pending.take_batch().into_iter().map(|observation| observation.report).collect();
        assert_eq!(batch, expected);
        assert!(pending.is_empty());
        for version in 0..60 {
            pending.add(seen("a", version, DeploymentState::Serving));
        }
        assert_eq!(
            (pending.take_batch().len(), pending.take_batch().len(), pending.take_batch().len()),
            (MAX_BATCH_REPORTS, 10, 0)
        );
    }

    #[test]
    fn batch_of_long_messages_has_at_most_48_kib() {
        let mut pending = PendingReports::default();
        for version in 0..25 {
            let message = Some("x".repeat(10 * 1024));
            pending.add(Observation::deployment("a", version, DeploymentState::Failed, message).unwrap());
        }
        // A larger report than the limit is sent on its own.
        let message = Some("x".repeat(MAX_BATCH_BYTES));
        pending.add(Observation::deployment("b", 1, DeploymentState::Failed, message).unwrap());
        let sizes: Vec<usize> = std::iter::repeat_with(|| pending.take_batch().len()).take(8).collect();
        assert_eq!(sizes, [4, 4, 4, 4, 4, 4, 1, 1]);
        assert!(pending.is_empty());
    }
}
