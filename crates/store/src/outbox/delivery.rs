//! One attempt at one message: delivering it, and settling what became of that.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use kernel::World;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use tokio::time::Instant;

use super::pass::LEASE;
use super::queue::{Attempt, Taken};
use super::{Deliver, Message, Undelivered};
use crate::transaction::{begin, commit, roll_back};
use crate::{Connection, Error, Store};

/// A delivery that takes longer is cut off: what is left of the lease is for settling.
const CUT_OFF: Duration = Duration::from_secs(45);

/// A delivered message that cannot be noted for reasons of its own is given up this long after it was taken.
const NOTING: Duration = Duration::from_secs(55);

/// The longest pause between two attempts, in seconds.
const LONGEST_PAUSE: i64 = 300;

/// What is not to be delivered again by itself.
const UNNOTED: &str = "delivered, but this could not be noted: a retry sends it again";

/// The longest reason that is kept, in characters.
const REASON: usize = 500;

static DELIVERIES: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.outbox.deliveries")
        .with_description("Attempts to deliver a message of the outbox, by topic and outcome: delivered, later or dead")
        .build()
});

/// An attempt on its way.
pub(super) struct Delivery {
    pub(super) store: Store,
    pub(super) deliverer: Arc<dyn Deliver>,
    pub(super) taken_at: Instant,
}

/// What became of it.
enum Outcome {
    Delivered(Message),
    Later(String),
    Dead(String),
}

/// Why it could not be settled.
enum Unsettled {
    /// The deliverer's own part of it.
    Noting(Error),
    Database(Error),
}

impl From<Error> for Unsettled {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl Delivery {
    pub(super) async fn run(self, taken: Taken) {
        let attempt = taken.attempt();
        let outcome = match taken.open(&self.store) {
            Ok(message) => self.deliver(message).await,
            Err(reason) => Outcome::Dead(reason),
        };
        let outcome = match outcome {
            Outcome::Later(reason) if self.store.world().now() >= attempt.give_up_at => {
                Outcome::Dead(format!("given up; the last attempt: {reason}"))
            }
            outcome => outcome,
        };
        self.settle(attempt, outcome).await;
    }

    async fn deliver(&self, message: Message) -> Outcome {
        // A deliverer that panics must not leave its message to be taken again and again.
        let delivering = AssertUnwindSafe(self.deliverer.deliver(&message)).catch_unwind();
        match tokio::time::timeout(CUT_OFF, delivering).await {
            Ok(Ok(Ok(()))) => Outcome::Delivered(message),
            Ok(Ok(Err(Undelivered::Later(reason)))) => Outcome::Later(presentable(&reason)),
            Ok(Ok(Err(Undelivered::Never(reason)))) => Outcome::Dead(presentable(&reason)),
            Ok(Err(_)) => Outcome::Later("a fault of the service; its log tells more".to_owned()),
            Err(_) => Outcome::Later(format!("no answer within {} s", CUT_OFF.as_secs())),
        }
    }

    /// Tries for as long as Postgres is away: nobody can take the message meanwhile, and giving up what was delivered
    /// means delivering it again.
    async fn settle(&self, attempt: Attempt, mut outcome: Outcome) {
        let topic = self.deliverer.topic();
        let mut pause = Duration::from_millis(100);
        loop {
            match self.try_settle(attempt, &outcome).await {
                Ok(true) => return tell(topic, attempt, &outcome),
                Ok(false) => {
                    tracing::info!(topic, id = %attempt.id, "withdrawn, or taken by another, while it was delivered");
                    return;
                }
                Err(unsettled) => {
                    // What the deliverer waits for in vain is not waited for by everybody.
                    let (error, overdue) = match unsettled {
                        Unsettled::Noting(error) => (error, self.taken_at.elapsed() > NOTING),
                        Unsettled::Database(error) => (error, false),
                    };
                    let hopeless = overdue || !passing(&error);
                    tracing::warn!(topic, id = %attempt.id, error = %cause(&error), hopeless, "an attempt is not settled");
                    match (hopeless, &outcome) {
                        (false, _) => {
                            tokio::time::sleep(pause).await;
                            pause = (pause * 2).min(Duration::from_secs(2));
                        }
                        (true, Outcome::Delivered(_)) => outcome = Outcome::Dead(UNNOTED.to_owned()),
                        (true, Outcome::Later(_) | Outcome::Dead(_)) => return,
                    }
                }
            }
        }
    }

    async fn try_settle(&self, attempt: Attempt, outcome: &Outcome) -> Result<bool, Unsettled> {
        let mut lease = self.store.connection().await?;
        let connection: &mut Connection = &mut lease;
        let now = self.store.world().now();
        match outcome {
            Outcome::Delivered(message) => self.note(connection, attempt, message).await,
            Outcome::Later(reason) => {
                let due_at = now.plus_millis(backoff(self.store.world(), attempt.number));
                Ok(attempt.postpone(connection, due_at, reason).await?)
            }
            Outcome::Dead(reason) => Ok(attempt.bury(connection, now, reason).await?),
        }
    }

    /// The deliverer's rows come first and the queue's last, as in the transactions that enqueue and withdraw: in the
    /// other order the two could wait for each other.
    async fn note(&self, connection: &mut Connection, attempt: Attempt, message: &Message) -> Result<bool, Unsettled> {
        begin(connection).await?;
        let at = self.store.world().now();
        let noting = AssertUnwindSafe(self.deliverer.delivered(connection, message, at)).catch_unwind();
        let noted = noting.await.unwrap_or_else(|_| Err(Error::inconsistent("noting the delivery panicked")));
        let removed = match noted {
            Ok(()) => attempt.remove(connection).await.map_err(Unsettled::Database),
            Err(error) => Err(Unsettled::Noting(error)),
        };
        match removed {
            Ok(true) => commit(connection).await?,
            Ok(false) | Err(_) => roll_back(connection).await,
        }
        removed
    }
}

fn tell(topic: &'static str, attempt: Attempt, outcome: &Outcome) {
    let (id, number) = (attempt.id, attempt.number);
    let word = match outcome {
        Outcome::Delivered(_) => {
            tracing::info!(topic, %id, attempt = number, "delivered");
            "delivered"
        }
        Outcome::Later(reason) => {
            tracing::warn!(topic, %id, attempt = number, reason, "not delivered yet");
            "later"
        }
        Outcome::Dead(reason) => {
            tracing::error!(topic, %id, attempt = number, reason, "not delivered, and given up");
            "dead"
        }
    };
    DELIVERIES.add(1, &[KeyValue::new("topic", topic), KeyValue::new("outcome", word)]);
}

/// Milliseconds until the next attempt: twice as long each time, and a fifth more or less, so that what failed together
/// does not come back together.
fn backoff(world: &World, attempts: i32) -> i64 {
    let millis = 1000 * (1_i64 << attempts.clamp(0, 16)).min(LONGEST_PAUSE);
    let spread = millis * 2 / 5;
    millis - spread / 2 + spread * i64::from(u16::from_be_bytes(world.bytes())) / i64::from(u16::MAX)
}

/// One line of what Postgres and a terminal both take.
fn presentable(reason: &str) -> String {
    reason.chars().take(REASON).map(|it| if it.is_control() { ' ' } else { it }).collect()
}

fn passing(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_))
}

/// The message is for clients; the log is told what was behind it.
pub(super) fn cause(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

const _: () = assert!(CUT_OFF.as_secs() < NOTING.as_secs() && NOTING.as_secs() < LEASE.as_secs());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_differ() {
        let world = World::system();
        for (attempts, seconds) in [(1, 2), (2, 4), (8, 256), (9, 300), (1000, 300)] {
            for _ in 0..100 {
                let millis = backoff(&world, attempts);
                assert!((seconds * 800..=seconds * 1200).contains(&millis), "{attempts}: {millis}");
            }
        }
        assert!((0..100).any(|_| backoff(&world, 9) != backoff(&world, 9)));
    }

    #[test]
    fn a_reason_is_one_short_line() {
        assert_eq!(presentable("550 no\0such\r\nuser"), "550 no such  user");
        assert_eq!(presentable(&"é".repeat(1000)).chars().count(), REASON);
    }
}
