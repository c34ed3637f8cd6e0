//! One attempt to deliver a message: calls the handler and records the result.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use kernel::{Time, error_chain};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue::{Attempt, ClaimedMessage};
use super::worker::LEASE;
use super::{DeliveryError, Message, OutboxHandler};
use crate::backoff::backoff;
use crate::transaction::{begin, commit, roll_back};
use crate::{Connection, Error, Store};

/// The default timeout of a delivery.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45);

/// The time for which a message is retried after its first failed attempt, in seconds. Then it becomes a dead letter.
pub(super) const RETRY_PERIOD_SECONDS: i64 = 72 * 3600;

/// The interval at which the lease is renewed during a delivery. If one renewal fails, the next one is in time.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(20);

/// The time after the start of the lease at which a delivered message becomes a dead letter if the handler still fails
/// to record it.
const RECORD_TIMEOUT: Duration = Duration::from_secs(55);

/// The error of a message that was delivered and is not retried automatically.
const NOT_RECORDED: &str = "delivered, but failed to record the delivery; a retry delivers it again";

const MAX_REASON_CHARS: usize = 500;

static DELIVERIES: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.outbox.deliveries")
        .with_description("Attempts to deliver outbox messages, by topic and outcome: delivered, retry or dead_letter")
        .build()
});

/// An attempt in progress.
pub(super) struct Delivery {
    pub(super) store: Store,
    pub(super) handler: Arc<dyn OutboxHandler>,
    /// The time of the claim, or of the last renewal of the lease.
    pub(super) leased_at: Instant,
}

/// The result of an attempt.
enum DeliveryOutcome {
    Delivered(Message),
    Retry(String),
    DeadLetter {
        reason: String,
        /// The message, if its handler must record that it was not delivered.
        undelivered: Option<Message>,
    },
}

/// An error in recording a result.
enum RecordError {
    /// An error of the handler.
    Handler(Error),
    Database(Error),
}

impl From<Error> for RecordError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl Delivery {
    pub(super) async fn run(mut self, claimed: ClaimedMessage) {
        let attempt = claimed.attempt();
        let outcome = match claimed.open(&self.store) {
            Ok(message) => self.deliver(attempt, message).await,
            // Not attempted: a retry delivers the message when the operator has corrected the keys.
            Err(reason) => DeliveryOutcome::DeadLetter { reason, undelivered: None },
        };
        self.record(attempt, outcome).await;
    }

    async fn deliver(&mut self, attempt: Attempt, message: Message) -> DeliveryOutcome {
        let reason = match self.call_handler(attempt, &message).await {
            Ok(()) => return DeliveryOutcome::Delivered(message),
            Err(DeliveryError::Permanent(reason)) => {
                return DeliveryOutcome::DeadLetter { reason: sanitize(&reason), undelivered: Some(message) };
            }
            Err(DeliveryError::Transient(reason)) => sanitize(&reason),
        };
        if !self.store.has_elapsed(attempt.failing_since, RETRY_PERIOD_SECONDS) {
            return DeliveryOutcome::Retry(reason);
        }
        let reason = format!("retry period is over; last error: {reason}");
        DeliveryOutcome::DeadLetter { reason, undelivered: Some(message) }
    }

    /// Calls the handler, and renews the lease until it returns. A panic and the timeout count as transient errors, so
    /// that the message gets a backoff.
    async fn call_handler(&mut self, attempt: Attempt, message: &Message) -> Result<(), DeliveryError> {
        let handler = Arc::clone(&self.handler);
        let (timeout, returned) = (handler.timeout(), Notify::new());
        let delivering = async {
            let delivering = AssertUnwindSafe(handler.deliver(message)).catch_unwind();
            let delivered = tokio::time::timeout(timeout, delivering).await;
            returned.notify_one();
            delivered
        };
        // The handler continues during a renewal, which can wait for a connection. A renewal is never dropped, because
        // its statement could then be executed after the result is recorded.
        let renewing = async {
            while tokio::time::timeout(RENEWAL_INTERVAL, returned.notified()).await.is_err() {
                self.renew_lease(attempt).await;
            }
        };
        let (delivered, ()) = tokio::join!(delivering, renewing);
        let reason = match delivered {
            Ok(Ok(delivered)) => return delivered,
            Ok(Err(_)) => "internal error; see the log of the service".to_owned(),
            Err(_) => format!("no response within {} s", timeout.as_secs()),
        };
        Err(DeliveryError::Transient(reason))
    }

    /// Renews the lease. After an error, the next renewal may succeed. If the message was withdrawn or claimed by
    /// another worker, the delivery continues, but its result is not recorded.
    async fn renew_lease(&mut self, attempt: Attempt) {
        let renewed_at = Instant::now();
        match self.try_renew_lease(attempt).await {
            Ok(true) => self.leased_at = renewed_at,
            Ok(false) => {}
            Err(error) => {
                let (topic, error) = (self.handler.topic(), error_chain(&error).to_string());
                tracing::warn!(topic, id = %attempt.id, error, "failed to renew the lease of an outbox message");
            }
        }
    }

    async fn try_renew_lease(&self, attempt: Attempt) -> Result<bool, Error> {
        let mut connection = self.store.connection().await?;
        let now = self.store.corrected_now(&mut connection).await?;
        let until = now.plus_seconds(LEASE.as_secs().cast_signed());
        attempt.renew(&mut connection, until).await
    }

    /// Retries while Postgres is unavailable. Other processes cannot claim the message in that time either, and giving
    /// up on a delivered message would cause a duplicate.
    async fn record(&self, attempt: Attempt, mut outcome: DeliveryOutcome) {
        let topic = self.handler.topic();
        let mut pause = Duration::from_millis(100);
        loop {
            match self.try_record(attempt, &outcome).await {
                Ok(true) => return report(topic, attempt, &outcome),
                Ok(false) => {
                    tracing::info!(topic, id = %attempt.id, "message was withdrawn or claimed by another worker");
                    return;
                }
                Err(record_error) => {
                    // Retries of the handler's errors have a limit, because the attempt occupies a delivery slot.
                    let (error, overdue) = match record_error {
                        RecordError::Handler(error) => (error, self.leased_at.elapsed() > RECORD_TIMEOUT),
                        RecordError::Database(error) => (error, false),
                    };
                    let give_up = overdue || !is_transient(&error);
                    let (id, chain) = (attempt.id, error_chain(&error).to_string());
                    tracing::warn!(topic, %id, error = chain, give_up, "failed to record the result of an attempt");
                    match (give_up, &outcome) {
                        (false, _) => {
                            tokio::time::sleep(pause).await;
                            pause = (pause * 2).min(Duration::from_secs(2));
                        }
                        (true, DeliveryOutcome::Delivered(_)) => {
                            let reason = NOT_RECORDED.to_owned();
                            outcome = DeliveryOutcome::DeadLetter { reason, undelivered: None };
                        }
                        // Without this, a handler that always fails here would get the message again after each lease.
                        (true, DeliveryOutcome::DeadLetter { reason, undelivered: Some(_) }) if !overdue => {
                            let reason = reason.clone();
                            outcome = DeliveryOutcome::DeadLetter { reason, undelivered: None };
                        }
                        (true, DeliveryOutcome::Retry(_) | DeliveryOutcome::DeadLetter { .. }) => return,
                    }
                }
            }
        }
    }

    async fn try_record(&self, attempt: Attempt, outcome: &DeliveryOutcome) -> Result<bool, RecordError> {
        let mut pooled = self.store.connection().await?;
        let connection: &mut Connection = &mut pooled;
        let now = self.store.corrected_now(connection).await?;
        match outcome {
            DeliveryOutcome::Delivered(message) => {
                self.record_by_handler(connection, attempt, message, None, now).await
            }
            DeliveryOutcome::Retry(reason) => {
                let next_attempt_at = now.plus_millis(backoff(self.store.clock_rng(), attempt.number));
                Ok(attempt.schedule_retry(connection, now, next_attempt_at, reason).await?)
            }
            DeliveryOutcome::DeadLetter { reason, undelivered: Some(message) } => {
                self.record_by_handler(connection, attempt, message, Some(reason), now).await
            }
            DeliveryOutcome::DeadLetter { reason, undelivered: None } => {
                Ok(attempt.dead_letter(connection, now, reason).await?)
            }
        }
    }

    /// Records a delivery, or a dead letter with this reason, together with the handler's rows. Writes these rows first
    /// and the queue's row last, in the same order as the transactions that enqueue and withdraw. The opposite order
    /// could deadlock.
    async fn record_by_handler(
        &self,
        connection: &mut Connection,
        attempt: Attempt,
        message: &Message,
        dead_letter: Option<&str>,
        at: Time,
    ) -> Result<bool, RecordError> {
        begin(connection).await?;
        let recording = match dead_letter {
            None => self.handler.on_delivered(connection, message, at),
            Some(_) => self.handler.on_dead_letter(connection, message, at),
        };
        let recorded = AssertUnwindSafe(recording)
            .catch_unwind()
            .await
            .unwrap_or_else(|_| Err(Error::inconsistent("the handler panicked while it recorded the result")));
        let written = match (recorded, dead_letter) {
            (Ok(()), None) => attempt.remove(connection).await.map_err(RecordError::Database),
            (Ok(()), Some(reason)) => attempt.dead_letter(connection, at, reason).await.map_err(RecordError::Database),
            (Err(error), _) => Err(RecordError::Handler(error)),
        };
        match written {
            Ok(true) => commit(connection).await?,
            Ok(false) | Err(_) => roll_back(connection).await,
        }
        written
    }
}

fn report(topic: &'static str, attempt: Attempt, outcome: &DeliveryOutcome) {
    let (id, number) = (attempt.id, attempt.number);
    let label = match outcome {
        DeliveryOutcome::Delivered(_) => {
            tracing::info!(topic, %id, attempt = number, "outbox message delivered");
            "delivered"
        }
        DeliveryOutcome::Retry(reason) => {
            tracing::warn!(topic, %id, attempt = number, reason, "delivery failed; retrying later");
            "retry"
        }
        DeliveryOutcome::DeadLetter { reason, .. } => {
            tracing::error!(topic, %id, attempt = number, reason, "delivery failed; message is now a dead letter");
            "dead_letter"
        }
    };
    DELIVERIES.add(1, &[KeyValue::new("topic", topic), KeyValue::new("outcome", label)]);
}

/// Returns the reason as one short line, without characters that Postgres or a terminal would reject.
pub(crate) fn sanitize(reason: &str) -> String {
    reason.chars().take(MAX_REASON_CHARS).map(|it| if it.is_control() { ' ' } else { it }).collect()
}

fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_))
}

const _: () =
    assert!(2 * RENEWAL_INTERVAL.as_secs() < RECORD_TIMEOUT.as_secs() && RECORD_TIMEOUT.as_secs() < LEASE.as_secs());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_short_line() {
        assert_eq!(sanitize("550 no\0such\r\nuser"), "550 no such  user");
        assert_eq!(sanitize(&"é".repeat(1000)).chars().count(), MAX_REASON_CHARS);
    }
}
