//! Telling the control plane what was seen.
//!
//! Batches go one after the other, each until it is answered. What comes meanwhile waits, the newest word on each
//! deployment alone, so a long absence of the control plane costs no more memory than there are deployments. What is lost
//! with the process is said again: the converger tells at its start what is served.

use std::collections::HashMap;
use std::pin::pin;

use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, sleep};

use crate::backoff::Backoff;
use crate::client::{Core, Receipt};
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
    mut taken: watch::Receiver<Option<u64>>,
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
async fn send(core: &Core, mut last: u64, observations: Vec<Observation>) -> u64 {
    let mut parts = vec![observations];
    while let Some(mut part) = parts.pop() {
        match deliver(core, last, &part).await {
            Ok(taken) => last = taken,
            Err(Refused) if part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            Err(Refused) => tracing::error!(?part, "a report is refused; it is given up"),
        }
    }
    last
}

/// The control plane takes it from nobody, however often it is sent.
struct Refused;

async fn deliver(core: &Core, last: u64, observations: &[Observation]) -> Result<u64, Refused> {
    let mut backoff = Backoff::up_to(LONGEST_PAUSE);
    let mut batch = after(last);
    loop {
        match core.report(batch, observations).await {
            Ok(Receipt::Taken(taken)) if taken <= batch => return Ok(batch),
            // Somebody was ahead of us, so this batch was passed over.
            Ok(Receipt::Taken(taken)) => batch = after(taken),
            Ok(Receipt::Refused) => return Err(Refused),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "what was seen cannot be reported; it is kept");
                sleep(backoff.pause()).await;
            }
        }
    }
}

/// The next number, past the time of day: a process before this one, killed in the middle of a batch, did not use it.
fn after(last: u64) -> u64 {
    (last + 1).max(u64::try_from(since_epoch().as_millis()).unwrap_or_default())
}

/// What is yet to be sent, in the order in which it was first seen.
#[derive(Default)]
struct Waiting {
    order: Vec<(String, u64)>,
    newest: HashMap<(String, u64), Observation>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn add(&mut self, observation: Observation) {
        let key = (observation.project.clone(), observation.version);
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
    fn take(&mut self) -> Vec<Observation> {
        let mut left = LARGEST_BYTES;
        let fits = |key: &&(String, u64)| {
            let size = self.newest.get(*key).map_or(0, Observation::size);
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        };
        let count = self.order.iter().take(LARGEST).take_while(fits).count().max(1).min(self.order.len());
        self.order.drain(..count).filter_map(|key| self.newest.remove(&key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::State;

    #[test]
    fn the_newest_word_on_each_deployment_is_sent_last() {
        let seen =
            |project: &str, version, state| Observation { project: project.to_owned(), version, state, message: None };
        let mut waiting = Waiting::default();
        for observation in [
            seen("a", 1, State::Serving),
            seen("b", 1, State::Failed),
            seen("a", 1, State::Crashed),
            seen("a", 2, State::Serving),
        ] {
            waiting.add(observation);
        }
        let taken = waiting.take();
        assert_eq!(taken, [seen("b", 1, State::Failed), seen("a", 1, State::Crashed), seen("a", 2, State::Serving)]);
        assert!(waiting.is_empty());
        for version in 0..60 {
            waiting.add(seen("a", version, State::Serving));
        }
        assert_eq!((waiting.take().len(), waiting.take().len(), waiting.take().len()), (LARGEST, 10, 0));
    }
}
