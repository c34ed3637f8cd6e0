//! The numbers of messages, by topic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex, PoisonError};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Gauge;

use super::Counts;
use crate::{Result, Store};

static PENDING: LazyLock<Gauge<u64>> =
    LazyLock::new(|| gauge("svc.outbox.pending", "Outbox messages that are due or wait for a retry"));
static DEAD_LETTERS: LazyLock<Gauge<u64>> =
    LazyLock::new(|| gauge("svc.outbox.dead_letters", "Outbox messages that are dead letters, kept for an operator"));

/// The topics that have a worker in this process, or had messages since its start. They are recorded also without
/// messages.
static TOPICS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn gauge(name: &'static str, description: &'static str) -> Gauge<u64> {
    opentelemetry::global::meter("svc").u64_gauge(name).with_description(description).build()
}

/// Adds the topic of a worker.
pub(super) fn add_topic(topic: &str) {
    TOPICS.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.to_owned());
}

/// Adds the known topics without messages, so that their gauges return to 0.
fn with_known(mut counts: BTreeMap<String, Counts>, known: &mut BTreeSet<String>) -> BTreeMap<String, Counts> {
    known.extend(counts.keys().cloned());
    for topic in &*known {
        counts.entry(topic.clone()).or_default();
    }
    counts
}

impl Store {
    /// Records the numbers of messages of all topics, with or without a worker. A background job calls it.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn outbox_record_counts(&self) -> Result<()> {
        let counts = self.outbox_counts().await?;
        let mut topics = TOPICS.lock().unwrap_or_else(PoisonError::into_inner);
        for (topic, counts) in with_known(counts, &mut topics) {
            let labels = [KeyValue::new("topic", topic)];
            PENDING.record(counts.pending.unsigned_abs(), &labels);
            DEAD_LETTERS.record(counts.dead.unsigned_abs(), &labels);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_without_messages_returns_to_0() {
        let topic = |counts| BTreeMap::from([("mail".to_owned(), counts)]);
        let (full, mut known) = (topic(Counts { pending: 2, dead: 1 }), BTreeSet::new());
        assert_eq!(with_known(full.clone(), &mut known), full);
        assert_eq!(with_known(BTreeMap::new(), &mut known), topic(Counts::default()));
    }
}
