//! The settlement of calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::Backoff;
use protocol::{AiSettlements, AiUsage, EndedCall, OpenCall};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use uuid::Uuid;

use super::journal::{CallState, Journal};
use super::{AiError, AiMetrics};
use crate::client::{Core, Outcome};

/// The largest number of calls in one request to the control plane.
const MAX_BATCH: usize = 200;
/// How often open calls are reported. The control plane ends a call that was not reported for 15 minutes.
const REPORT_PERIOD: Duration = Duration::from_secs(60);
/// The largest number of calls that wait for their settlement before no further call begins. A call whose admission
/// failed waits too, because the control plane may have admitted it. Without this limit, an outage of the control plane
/// would fill the memory and the journal.
pub const MAX_UNSETTLED: i64 = 10_000;
/// The longest delay before settlements are sent again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Settles the calls of the node.
pub struct Meter {
    journal: Journal,
    /// Bounded by [`MAX_UNSETTLED`] and by the calls in progress.
    ended: mpsc::UnboundedSender<EndedCall>,
    /// The calls that were sent, with their estimated output so far.
    open: Mutex<HashMap<Uuid, Arc<AtomicU32>>>,
    metrics: AiMetrics,
}

impl Meter {
    /// Starts the settlement of calls, beginning with those of the previous process.
    pub fn start(
        journal: Journal,
        core: Core,
        metrics: AiMetrics,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Arc<Self>> {
        let (ended, queue) = mpsc::unbounded_channel();
        let calls = journal.read()?;
        if !calls.is_empty() {
            tracing::info!(calls = calls.len(), "settling the AI calls of the previous process");
        }
        for (id, state) in calls {
            metrics.unsettled.inc();
            // The send cannot fail: `queue` is the receiver.
            let _ = ended.send(EndedCall { id: id.to_string(), usage: state.usage() });
        }
        let meter = Arc::new(Self { journal, ended, open: Mutex::default(), metrics });
        tasks.spawn(Arc::clone(&meter).settle(core.clone(), queue));
        tasks.spawn(Arc::clone(&meter).report(core));
        Ok(meter)
    }

    /// Returns whether another call may begin.
    pub fn has_space(&self) -> bool {
        self.metrics.unsettled.get() < MAX_UNSETTLED
    }

    /// Records the state of a call in the journal. Fails only if the node cannot write to its disk.
    pub async fn record(&self, id: Uuid, state: CallState) -> Result<(), AiError> {
        self.journal.write(id, state).await.map_err(|error| {
            tracing::error!(%error, "cannot write the journal of AI calls");
            AiError::NoUpstream
        })
    }

    /// Removes a call that the control plane refused from the journal.
    pub async fn forget(&self, id: Uuid) {
        if let Err(error) = self.journal.remove(id).await {
            tracing::error!(%error, %id, "cannot remove an AI call from the journal");
        }
    }

    /// Adds a call to the open calls. Returns the counter of its estimated output tokens, which the caller updates.
    pub fn open(&self, id: Uuid) -> Arc<AtomicU32> {
        let output_tokens = Arc::new(AtomicU32::new(0));
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&output_tokens));
        self.metrics.open.inc();
        output_tokens
    }

    /// Ends a call, and settles it as soon as the control plane is reachable. Without `usage`, the call is free.
    pub async fn end(&self, id: Uuid, usage: Option<AiUsage>) {
        if self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id).is_some() {
            self.metrics.open.dec();
        }
        self.metrics.unsettled.inc();
        // If this write fails and the node dies before the settlement, the next process settles the call with the
        // estimate in the previous file.
        if let Err(error) = self.journal.write(id, CallState::Ended { usage }).await {
            tracing::error!(%error, %id, "cannot write the end of an AI call");
        }
        if self.ended.send(EndedCall { id: id.to_string(), usage }).is_err() {
            tracing::warn!(%id, "the node stops; the call is settled after its next start");
        }
    }

    /// Sends the calls that ended, until the control plane accepts them.
    async fn settle(self: Arc<Self>, core: Core, mut queue: mpsc::UnboundedReceiver<EndedCall>) {
        let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
        let mut ended = Vec::new();
        while queue.recv_many(&mut ended, MAX_BATCH).await > 0 {
            loop {
                let settlements = AiSettlements { ended: ended.clone(), open: Vec::new() };
                match core.settle_ai_calls(&settlements).await {
                    Ok(Outcome::Accepted(())) => break self.close(&ended, true).await,
                    Ok(Outcome::Rejected) if ended.len() == 1 => {
                        tracing::error!(?ended, "the control plane rejects the settlement of an AI call");
                        break self.close(&ended, false).await;
                    }
                    // One malformed call makes the control plane reject the whole batch. Send the first call now, and
                    // queue the others again.
                    Ok(Outcome::Rejected) => {
                        ended.drain(1..).for_each(|call| drop(self.ended.send(call)));
                    }
                    Err(error) => {
                        tracing::warn!(%error, calls = ended.len(), "cannot settle AI calls; trying again");
                        sleep(backoff.next_delay()).await;
                    }
                }
            }
            backoff.reset();
            ended.clear();
        }
    }

    async fn close(&self, ended: &[EndedCall], accepted: bool) {
        for EndedCall { id, .. } in ended {
            self.metrics.unsettled.dec();
            let Ok(id) = id.parse() else { continue };
            let closed = if accepted { self.journal.remove(id).await } else { self.journal.set_aside(id).await };
            if let Err(error) = closed {
                // If the file stays, the next process settles the call again, which changes nothing.
                tracing::error!(%error, %id, "cannot remove an AI call from the journal");
            }
        }
    }

    /// Reports the open calls and their progress.
    async fn report(self: Arc<Self>, core: Core) {
        let mut ticks = interval(REPORT_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let open: Vec<(Uuid, u32)> = {
                let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                open.iter().map(|(id, output)| (*id, output.load(Ordering::Relaxed))).collect()
            };
            for batch in open.chunks(MAX_BATCH) {
                let calls = batch.iter().map(|(id, output)| OpenCall { id: id.to_string(), output_tokens: *output });
                let report = AiSettlements { ended: Vec::new(), open: calls.collect() };
                if let Err(error) = core.settle_ai_calls(&report).await {
                    tracing::warn!(%error, "cannot report the open AI calls");
                }
            }
        }
    }
}
