//! The comparison of this server's clock with the clock of Postgres.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::{ClockRng, Time};
use store::Store;
use tokio::sync::Mutex;

/// The largest difference between the clocks at which background jobs run, in seconds. It is much longer than a query,
/// and much shorter than the ages at which jobs delete or end rows.
const MAX_DIFFERENCE_SECONDS: i64 = 5 * 60;

/// The interval of reads of Postgres's clock. Between them, its time is derived from the monotonic clock.
const READ_INTERVAL: Duration = Duration::from_secs(30);

/// The time for which jobs do not wait for Postgres again after it did not respond.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Compares the system's clock with the clock of Postgres. Ignores the injected clock, which tests advance. Clones share
/// the last reading.
#[derive(Clone)]
pub(crate) struct ClockCheck {
    store: Store,
    system: ClockRng,
    last: Arc<Mutex<Option<Reading>>>,
}

/// The last reading of Postgres's clock, and the time of the next attempt.
#[derive(Clone, Copy)]
struct Reading {
    /// `None` if Postgres has not responded yet.
    time: Option<(Time, Instant)>,
    next: Instant,
}

impl ClockCheck {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, system: ClockRng::system(), last: Arc::default() }
    }

    /// Returns the seconds by which this server is ahead of Postgres if the clocks differ too much. Returns `None` if
    /// Postgres has not responded yet: a job that needs Postgres fails anyway, and the others must continue.
    pub(crate) async fn excessive_lead(&self) -> Option<i64> {
        let (time, read_at) = self.reading().await?;
        let postgres = time.unix_seconds() + i64::try_from(read_at.elapsed().as_secs()).unwrap_or_default();
        let lead = self.system.now().unix_seconds() - postgres;
        (lead.abs() > MAX_DIFFERENCE_SECONDS).then_some(lead)
    }

    /// Returns the last reading, and the time at which it was made. Reads the clock if an attempt is due.
    async fn reading(&self) -> Option<(Time, Instant)> {
        let mut last = self.last.lock().await;
        if let Some(Reading { time, next }) = *last
            && Instant::now() < next
        {
            return time;
        }
        let read = self.store.postgres_time().await.ok().map(|time| (time, Instant::now()));
        let interval = if read.is_some() { READ_INTERVAL } else { RETRY_INTERVAL };
        // An earlier reading stays valid.
        let time = read.or(last.and_then(|reading| reading.time));
        *last = Some(Reading { time, next: Instant::now() + interval });
        time
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kernel::Secret;
    use store::Config;
    use testkit::{TestClock, TestDatabase};

    use super::*;

    fn store(url: String) -> Store {
        Store::new(&Config::new(Secret::new(url), "test"), ClockRng::system()).unwrap()
    }

    /// Returns a check whose Postgres is unreachable.
    pub(crate) fn without_postgres() -> ClockCheck {
        ClockCheck::new(store("postgres://svc@127.0.0.1:1/svc".to_owned()))
    }

    /// Returns a check of this clock instead of the system's clock.
    pub(crate) fn of_clock(database: &TestDatabase, clock: &TestClock) -> ClockCheck {
        ClockCheck { system: clock.clock_rng(), ..ClockCheck::new(store(database.url())) }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lead_of_more_than_five_minutes_is_excessive() {
        let (database, clock) = (TestDatabase::create().await, TestClock::running());
        let check = of_clock(&database, &clock);
        for (advanced, sign) in [(0, 0), (600, 1), (-600, 0), (-600, -1), (600, 0)] {
            clock.advance(advanced);
            assert_eq!(check.excessive_lead().await.map_or(0, i64::signum), sign, "{advanced}");
        }
        assert_eq!(without_postgres().excessive_lead().await, None);
    }
}
