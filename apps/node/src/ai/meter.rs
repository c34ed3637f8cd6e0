//! The settlement of calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::Backoff;
use protocol::{AiSettlements, AiUsage, EndedCall, OpenCall};
use semaphores::KeyedSemaphores;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use uuid::Uuid;

use super::journal::{CallState, Journal};
use super::{AiError, AiMetrics};
use crate::client::{Core, Outcome};
use crate::random;

/// The largest number of calls in one request to the control plane.
const MAX_BATCH: usize = 200;
/// How often open calls are reported. The control plane ends a call that was not reported for 15 minutes.
const REPORT_PERIOD: Duration = Duration::from_secs(60);
/// The largest number of calls that wait for their settlement before no further call begins. A call whose admission
/// failed waits too, because the control plane may have admitted it. Without this limit, an outage of the control plane
/// would fill the memory and the journal.
pub const MAX_UNSETTLED: i64 = 10_000;
/// The same limit of one project, which also counts calls in progress: two processes may have 1,000 calls each. So the
/// calls of a project do not exclude those of others.
pub const MAX_PROJECT_UNSETTLED: usize = 2_000;
/// The longest delay before settlements are sent again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Settles the calls of the node.
pub struct Meter {
    journal: Journal,
    /// Bounded by [`MAX_UNSETTLED`] and by the calls in progress.
    ended: mpsc::UnboundedSender<UnsettledCall>,
    /// The calls of each project that are in progress or not settled.
    projects: KeyedSemaphores<String>,
    /// The calls that were sent, with their estimated output so far.
    open: Mutex<HashMap<Uuid, Arc<AtomicU32>>>,
    metrics: AiMetrics,
}

/// A call that must be ended or forgotten.
pub struct MeteredCall {
    pub id: Uuid,
    permit: OwnedSemaphorePermit,
}

/// A call that ended, and waits for its settlement.
struct UnsettledCall {
    ended: EndedCall,
    /// `None` if it is a call of the previous process.
    _permit: Option<OwnedSemaphorePermit>,
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
            let call = EndedCall { id: id.to_string(), usage: state.usage() };
            let _ = ended.send(UnsettledCall { ended: call, _permit: None });
        }
        let projects = KeyedSemaphores::new(MAX_PROJECT_UNSETTLED);
        let meter = Arc::new(Self { journal, ended, projects, open: Mutex::default(), metrics });
        tasks.spawn(Arc::clone(&meter).settle(core.clone(), queue));
        tasks.spawn(Arc::clone(&meter).report(core));
        Ok(meter)
    }

    /// Begins a call. Returns `None` if too many calls of the project or of the node wait for their settlement.
    pub fn begin(&self, project: &str) -> Option<MeteredCall> {
        if self.metrics.unsettled.get() >= MAX_UNSETTLED {
            return None;
        }
        let permit = self.projects.of(project.to_owned()).try_acquire_owned().ok()?;
        Some(MeteredCall { id: random::id(), permit })
    }

    /// Records the state of a call in the journal. Fails only if the node cannot write to its disk.
    pub async fn record(&self, id: Uuid, state: CallState) -> Result<(), AiError> {
        self.journal.write(id, state).await.map_err(|error| {
            tracing::error!(%error, "cannot write the journal of AI calls");
            AiError::NoUpstream
        })
    }

    /// Removes a call that the control plane refused from the journal.
    pub async fn forget(&self, MeteredCall { id, .. }: MeteredCall) {
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
    pub async fn end(&self, MeteredCall { id, permit }: MeteredCall, usage: Option<AiUsage>) {
        if self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id).is_some() {
            self.metrics.open.dec();
        }
        self.metrics.unsettled.inc();
        // If this write fails and the node dies before the settlement, the next process settles the call with the
        // estimate in the previous file.
        if let Err(error) = self.journal.write(id, CallState::Ended { usage }).await {
            tracing::error!(%error, %id, "cannot write the end of an AI call");
        }
        let ended = EndedCall { id: id.to_string(), usage };
        if self.ended.send(UnsettledCall { ended, _permit: Some(permit) }).is_err() {
            tracing::warn!(%id, "the node stops; the call is settled after its next start");
        }
    }

    /// Sends the calls that ended, until the control plane accepts them.
    async fn settle(self: Arc<Self>, core: Core, mut queue: mpsc::UnboundedReceiver<UnsettledCall>) {
        let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
        let mut calls = Vec::new();
        while queue.recv_many(&mut calls, MAX_BATCH).await > 0 {
            loop {
                let ended: Vec<_> = calls.iter().map(|call| call.ended.clone()).collect();
                let settlements = AiSettlements { ended, open: Vec::new() };
                match core.settle_ai_calls(&settlements).await {
                    Ok(Outcome::Accepted(())) => break self.close(&settlements.ended, true).await,
                    Ok(Outcome::Rejected) if calls.len() == 1 => {
                        let ended = settlements.ended;
                        tracing::error!(?ended, "the control plane rejects the settlement of an AI call");
                        break self.close(&ended, false).await;
                    }
                    // One malformed call makes the control plane reject the whole batch. Send the first call now, and
                    // queue the others again.
                    Ok(Outcome::Rejected) => {
                        calls.drain(1..).for_each(|call| drop(self.ended.send(call)));
                    }
                    Err(error) => {
                        tracing::warn!(%error, calls = calls.len(), "cannot settle AI calls; trying again");
                        sleep(backoff.next_delay()).await;
                    }
                }
            }
            backoff.reset();
            calls.clear();
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
