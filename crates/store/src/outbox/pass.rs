//! The pass over one topic: woken by `NOTIFY`, right without it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Gauge;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Instrument as _;

use super::delivery::{Delivery, cause};
use super::{Deliver, queue};
use crate::{Result, Store};

/// How long a message that was taken is nobody else's.
pub(super) const LEASE: Duration = Duration::from_secs(60);

/// How often it looks by itself.
const LOOK: Duration = Duration::from_secs(5);

/// How soon it looks again after Postgres did not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often it counts.
const COUNT: Duration = Duration::from_secs(15);

/// How long a stop waits for what is being delivered: as long as for requests.
const FINISH: Duration = Duration::from_secs(25);

static WAITING: LazyLock<Gauge<u64>> = LazyLock::new(|| gauge("svc.outbox.waiting", "Messages still to be delivered"));
static DEAD: LazyLock<Gauge<u64>> =
    LazyLock::new(|| gauge("svc.outbox.dead", "Messages given up, kept for an operator"));

fn gauge(name: &'static str, description: &'static str) -> Gauge<u64> {
    opentelemetry::global::meter("svc").u64_gauge(name).with_description(description).build()
}

/// Delivers the messages of one topic for as long as it lives. Dropped, it ends at once: what it was delivering is
/// delivered again once the lease is over.
#[derive(Debug)]
#[must_use = "dropped, it delivers nothing"]
pub struct Pass {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Store {
    /// Begins to deliver the messages of a topic, in a task of its own, so that topics do not wait for each other. Any
    /// number of processes may do so. Needs a tokio runtime.
    pub fn deliver(&self, deliverer: Arc<dyn Deliver>) -> Pass {
        let (stop, stopping) = watch::channel(false);
        let walk = Walk { store: self.clone(), deliverer, deliveries: JoinSet::new() };
        Pass { task: tokio::spawn(walk.run(stopping)), stop }
    }
}

impl Pass {
    /// Takes nothing more, and finishes what is being delivered: for up to 25 seconds, then it is cut off.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(FINISH, &mut self.task).await.is_err() {
            tracing::warn!("deliveries were cut off by the stop: they are repeated");
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Walk {
    store: Store,
    deliverer: Arc<dyn Deliver>,
    deliveries: JoinSet<()>,
}

impl Walk {
    async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let topic = self.deliverer.topic();
        let listener = self.store.outbox_listener();
        let mut signals = listener.subscribe();
        let mut count = tokio::time::interval(COUNT);
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Whether there may be more that is due, and when to think so in any case.
        let (mut more, mut next) = (true, Instant::now() + LOOK);
        while !*stopping.borrow() {
            if more && self.deliveries.len() < self.deliverer.at_once() {
                more = self.take().await.unwrap_or_else(|error| {
                    tracing::warn!(topic, error = %cause(&error), "the outbox could not be read");
                    next = Instant::now() + LOOK_AGAIN;
                    false
                });
            }
            tokio::select! {
                biased;
                _ = stopping.changed() => break,
                () = woken(&mut signals, topic) => more = true,
                () = tokio::time::sleep_until(next) => {
                    more = true;
                    next = Instant::now() + LOOK;
                }
                _ = count.tick() => self.measure().await,
                Some(_) = self.deliveries.join_next() => {}
            }
        }
        while self.deliveries.join_next().await.is_some() {}
    }

    /// Takes what there is room for. Answers whether there may be more.
    async fn take(&mut self) -> Result<bool> {
        let (topic, now, taken_at) = (self.deliverer.topic(), self.store.world().now(), Instant::now());
        let room = self.deliverer.at_once().saturating_sub(self.deliveries.len());
        let until = now.plus_seconds(LEASE.as_secs().cast_signed());
        let taken = queue::take(&mut *self.store.connection().await?, topic, room, now, until).await?;
        let more = taken.len() >= room;
        for taken in taken {
            let span = tracing::info_span!("deliver", topic, id = %taken.attempt().id);
            let delivery = Delivery { store: self.store.clone(), deliverer: self.deliverer.clone(), taken_at };
            self.deliveries.spawn(delivery.run(taken).instrument(span));
        }
        Ok(more)
    }

    async fn measure(&self) {
        let topic = self.deliverer.topic();
        let counted = async { queue::count(&mut *self.store.connection().await?, topic).await };
        match counted.await {
            Ok(counts) => {
                let labels = [KeyValue::new("topic", topic)];
                WAITING.record(counts.waiting.unsigned_abs(), &labels);
                DEAD.record(counts.dead.unsigned_abs(), &labels);
            }
            Err(error) => tracing::debug!(topic, error = %cause(&error), "the outbox could not be counted"),
        }
    }
}

/// Ends when something was announced that may be of this topic. One look serves all that was announced before it.
async fn woken(signals: &mut broadcast::Receiver<String>, topic: &str) {
    loop {
        match signals.recv().await {
            Ok(announced) if announced.is_empty() || announced == topic => break,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => break,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
    while !matches!(signals.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
}
