//! The outbox worker of one topic. `NOTIFY` wakes it up, but it also works without notifications.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::error_chain;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::task::{self, JoinHandle, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use super::delivery::Delivery;
use super::{OutboxHandler, metrics, queue};
use crate::{Result, Store};

/// The lease of a claimed message. It is renewed during a delivery. A delivery with the default timeout ends before the
/// lease of its claim.
pub const LEASE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The time until the next poll after a database error.
const ERROR_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time that a graceful shutdown waits for deliveries in progress. It is the same as for requests.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

/// Delivers the messages of one topic until it is dropped. A drop aborts deliveries in progress, which are repeated
/// after their lease.
#[derive(Debug)]
#[must_use = "a dropped worker delivers nothing"]
pub struct OutboxWorker {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Store {
    /// Starts an outbox worker in its own task, so that one topic does not wait for another. Any number of processes
    /// may run workers for the same topic. While the system's clock is wrong, the worker claims no messages. The caller
    /// must be in a tokio runtime.
    pub fn spawn_outbox_worker(&self, handler: Arc<dyn OutboxHandler>) -> OutboxWorker {
        metrics::add_topic(handler.topic());
        let (stop, stopping) = watch::channel(false);
        let delivery_loop = DeliveryLoop::new(self.clone(), handler);
        OutboxWorker { task: tokio::spawn(delivery_loop.run(stopping)), stop }
    }
}

impl OutboxWorker {
    /// Stops claiming messages and waits up to 25 seconds for deliveries in progress, then aborts them.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, &mut self.task).await.is_err() {
            tracing::warn!("shutdown timed out; aborted deliveries are repeated after their lease");
        }
    }
}

impl Drop for OutboxWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct DeliveryLoop {
    store: Store,
    handler: Arc<dyn OutboxHandler>,
    deliveries: JoinSet<()>,
    /// The tenants of the deliveries in progress.
    tenants: HashMap<task::Id, Uuid>,
    /// The tenant after which the next claim begins, so that each tenant gets its turn.
    last_tenant: Uuid,
    /// Whether the last claim was skipped because the system's clock is wrong.
    is_paused: bool,
}

impl DeliveryLoop {
    fn new(store: Store, handler: Arc<dyn OutboxHandler>) -> Self {
        let (deliveries, tenants) = (JoinSet::new(), HashMap::new());
        Self { store, handler, deliveries, tenants, last_tenant: Uuid::nil(), is_paused: false }
    }

    async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let topic = self.handler.topic();
        let listener = self.store.outbox_listener();
        let mut wakeups = listener.subscribe();
        // Whether more messages may be due, and when to poll again in any case.
        let (mut more_due, mut next_poll) = (true, Instant::now() + POLL_INTERVAL);
        while !*stopping.borrow() {
            if more_due && self.deliveries.len() < self.handler.max_concurrency() {
                more_due = self.claim().await.unwrap_or_else(|error| {
                    tracing::warn!(topic, error = %error_chain(&error), "failed to claim outbox messages");
                    next_poll = Instant::now() + ERROR_POLL_INTERVAL;
                    false
                });
            }
            tokio::select! {
                biased;
                _ = stopping.changed() => break,
                () = wait_for_wakeup(&mut wakeups, topic) => more_due = true,
                () = tokio::time::sleep_until(next_poll) => {
                    more_due = true;
                    next_poll = Instant::now() + POLL_INTERVAL;
                }
                Some(ended) = self.deliveries.join_next_with_id() => {
                    self.tenants.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
            }
        }
        while self.deliveries.join_next().await.is_some() {}
    }

    /// Claims as many messages as may be delivered concurrently. Returns whether to claim again when a delivery ends.
    async fn claim(&mut self) -> Result<bool> {
        let mut connection = self.store.connection().await?;
        let now = self.store.corrected_now(&mut connection).await?;
        self.check_clock();
        if self.is_paused {
            return Ok(false);
        }
        let (topic, leased_at) = (self.handler.topic(), Instant::now());
        let free_slots = self.handler.max_concurrency().saturating_sub(self.deliveries.len());
        let tenant_limit = self.handler.max_concurrency_per_tenant();
        let busy: Vec<Uuid> = self.tenants.values().copied().collect();
        let claim = queue::claim(&mut connection, topic, free_slots, tenant_limit, &busy, self.last_tenant, now);
        let (claimed, visited) = claim.await?;
        drop(connection);
        // The claim begins after the last tenant, so the tenants up to this one come at its end. The next one begins no
        // later than after the tenants that this one has visited, so that it skips none.
        let last = self.last_tenant;
        let order = |id: &Uuid| (*id <= last, *id);
        let furthest = claimed.iter().map(|message| message.tenant_id).max_by_key(order);
        self.last_tenant = furthest.into_iter().chain(visited).min_by_key(order).unwrap_or(last);
        let is_full = claimed.len() >= free_slots;
        for message in claimed {
            let span = tracing::info_span!("deliver", topic, id = %message.attempt().id);
            let delivery = Delivery { store: self.store.clone(), handler: self.handler.clone(), leased_at };
            let tenant = message.tenant_id;
            let task = self.deliveries.spawn(delivery.run(message).instrument(span));
            self.tenants.insert(task.id(), tenant);
        }
        // The limit can leave due messages while slots are free, also if no tenant is at its limit: a concurrent claim
        // of another server may have locked the only messages that the limit allowed.
        Ok(is_full || tenant_limit < self.handler.max_concurrency() && !self.tenants.is_empty())
    }

    /// Pauses the worker while the system's clock is wrong. Handlers also use times that are not corrected.
    fn check_clock(&mut self) {
        let lead = self.store.clock_check().excessive_lead();
        let was_paused = std::mem::replace(&mut self.is_paused, lead.is_some());
        if let (Some(lead_seconds), false) = (lead, was_paused) {
            let topic = self.handler.topic();
            tracing::error!(topic, lead_seconds, "paused an outbox worker: the clock differs from Postgres");
        }
    }
}

/// Waits for a wake-up that may concern the topic. One poll serves all pending wake-ups, so the others are discarded.
async fn wait_for_wakeup(wakeups: &mut broadcast::Receiver<String>, topic: &str) {
    loop {
        match wakeups.recv().await {
            Ok(notified) if notified.is_empty() || notified == topic => break,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => break,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
    while !matches!(wakeups.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use diesel_async::RunQueryDsl as _;
    use kernel::{OrgId, Secret};
    use testkit::{TestClock, TestDatabase, keys};

    use super::*;
    use crate::outbox::{DeliveryError, Message};
    use crate::{Config, Connection};

    const TOPIC: &str = "mail";

    /// A handler whose deliveries do not end.
    struct PendingHandler;

    #[async_trait]
    impl OutboxHandler for PendingHandler {
        fn topic(&self) -> &'static str {
            TOPIC
        }

        fn max_concurrency_per_tenant(&self) -> usize {
            2
        }

        async fn deliver(&self, _: &Message) -> std::result::Result<(), DeliveryError> {
            std::future::pending().await
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn worker_claims_again_if_the_next_message_was_locked() {
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        let config = Config { keys: keys(), ..Config::new(Secret::new(database.url()), "test") };
        let store = Store::new(&config, clock.clock_rng()).expect("a store");
        let mut delivery_loop = DeliveryLoop::new(store.clone(), Arc::new(PendingHandler));
        assert!(!delivery_loop.claim().await.expect("a claim of nothing"));
        let org: OrgId = store.clock_rng().id();
        let enqueue = async |tx: &mut Connection| {
            store.enqueue_for(tx, TOPIC, org, "1", &()).await?;
            store.enqueue_for(tx, TOPIC, org, "2", &()).await
        };
        store.transaction_unaudited(enqueue).await.expect("two messages");
        let claim = async |tx: &mut Connection| {
            let lock = diesel::sql_query("SELECT id FROM store.outbox LIMIT 1 FOR UPDATE");
            lock.execute(tx).await?;
            delivery_loop.claim().await
        };
        assert!(store.transaction_unaudited(claim).await.expect("a claim of the other message"));
        assert_eq!(delivery_loop.tenants.len(), 1);
    }
}
