//! Telling the control plane what was seen.
//!
//! Batches go one after the other, each until it is answered. Other observations wait, only the newest about each
//! subject, so a long absence of the control plane costs no more memory than there are subjects. What is lost
//! with the process is said again: the converger tells at its start what is served.

use std::collections::HashMap;
use std::pin::pin;

use protocol::{Batch, Receipt, Report};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, sleep};

use crate::backoff::Backoff;
use crate::client::{Core, Reported};
use crate::clock::since_epoch;
use crate::observe::Observation;

/// Reports that one batch may hold, and about how many bytes.
const LARGEST: usize = 50;
const LARGEST_BYTES: usize = 48 * 1024;
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Sends what comes through `seen` for ever; `taken` is the last number that the control plane is known to have.
pub async fn report(
    core: Core,
    mut seen: mpsc::UnboundedReceiver<Observation>,
    mut taken: watch::Receiver<Option<i64>>,
) {
    let mut waiting = Waiting::default();
    // Numbers go on from what the control plane knows, which its first answer tells.
    let mut last = {
        let known = async { taken.wait_for(Option::is_some).await.ok().and_then(|last| *last) };
        let Some(last) = waiting.gather_until(&mut seen, known).await else { return };
        last
    };
    loop {
        if waiting.is_empty() {
            let Some(first) = seen.recv().await else { return };
            waiting.add(first);
        }
        let batch = waiting.take();
        last = waiting.gather_until(&mut seen, send(&core, last, batch)).await;
    }
}

/// Sends one batch until it is taken in, and tells its number. What is refused goes in halves; a report that is refused
/// alone is given up.
async fn send(core: &Core, mut last: i64, reports: Vec<Report>) -> i64 {
    let mut parts = vec![reports];
    while let Some(part) = parts.pop() {
        match deliver(core, last, part).await {
            Ok(taken) => last = taken,
            Err(Refused(mut part)) if part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            Err(Refused(part)) => tracing::error!(?part, "a report is refused; it is given up"),
        }
    }
    last
}

/// Reports that the control plane will not accept, however often they are sent.
struct Refused(Vec<Report>);

async fn deliver(core: &Core, last: i64, reports: Vec<Report>) -> Result<i64, Refused> {
    let mut backoff = Backoff::up_to(LONGEST_PAUSE);
    let mut batch = Batch { batch: after(last), reports };
    loop {
        match core.report(&batch).await {
            Ok(Reported::Received(Receipt { batch: last })) if last <= batch.batch => return Ok(batch.batch),
            // An earlier process of this node used a greater number, so this batch was ignored.
            Ok(Reported::Received(Receipt { batch: last })) => batch.batch = after(last),
            Ok(Reported::Refused) => return Err(Refused(batch.reports)),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "what was seen cannot be reported; it is kept");
                sleep(backoff.pause()).await;
            }
        }
    }
}

/// The next number, past the time of day: a process before this one, killed in the middle of a batch, did not use it.
fn after(last: i64) -> i64 {
    (last + 1).max(i64::try_from(since_epoch().as_millis()).unwrap_or_default())
}

/// What is yet to be sent, in the order in which it was first seen.
#[derive(Default)]
struct Waiting {
    order: Vec<Key>,
    newest: HashMap<Key, Observation>,
}

/// Project, kind and subject.
type Key = (String, String, String);

impl Waiting {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn add(&mut self, observation: Observation) {
        let Observation { subject, report } = &observation;
        let key = (report.project.clone(), report.kind.clone(), subject.clone());
        if self.newest.insert(key.clone(), observation).is_some() {
            self.order.retain(|other| *other != key);
        }
        self.order.push(key);
    }

    /// Takes in what comes through `seen` until something else is done.
    async fn gather_until<T>(
        &mut self,
        seen: &mut mpsc::UnboundedReceiver<Observation>,
        done: impl Future<Output = T>,
    ) -> T {
        let mut done = pin!(done);
        loop {
            tokio::select! {
                done = &mut done => return done,
                Some(observation) = seen.recv() => self.add(observation),
            }
        }
    }

    /// As much as one batch may hold.
    fn take(&mut self) -> Vec<Report> {
        let mut left = LARGEST_BYTES;
        let fits = |key: &&Key| {
            let size = self.newest.get(*key).map_or(0, Observation::size);
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        };
        let count = self.order.iter().take(LARGEST).take_while(fits).count().max(1).min(self.order.len());
        self.order.drain(..count).filter_map(|key| Some(self.newest.remove(&key)?.report)).collect()
    }
}

#[cfg(test)]
mod tests {
    use protocol::{DeploymentReport, DeploymentState, ReportKind};
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Usage(u64);

    impl ReportKind for Usage {
        const NAME: &'static str = "usage";
    }

    #[test]
    fn only_the_newest_report_about_a_subject_is_sent() {
        let seen = |project, version, state| Observation::deployment(project, version, state, None).unwrap();
        let usage = |bytes| Observation::new("a", "1".to_owned(), &Usage(bytes)).unwrap();
        let mut waiting = Waiting::default();
        for observation in [
            seen("a", 1, DeploymentState::Serving),
            seen("b", 1, DeploymentState::Failed),
            usage(1),
            seen("a", 1, DeploymentState::Crashed),
            seen("a", 2, DeploymentState::Serving),
            usage(2),
        ] {
            waiting.add(observation);
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
        assert_eq!(waiting.take(), expected);
        assert!(waiting.is_empty());
        for version in 0..60 {
            waiting.add(seen("a", version, DeploymentState::Serving));
        }
        assert_eq!((waiting.take().len(), waiting.take().len(), waiting.take().len()), (LARGEST, 10, 0));
    }
}
