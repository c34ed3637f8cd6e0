//! The comparison of the system's clock with the clock of Postgres.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::QueryableByName;
use diesel::sql_types::Timestamptz;
use diesel_async::RunQueryDsl as _;
use kernel::{ClockRng, Time, error_chain};
use tokio::sync::{Mutex, watch};

use crate::{Connection, Prepared, Result, Store};

/// The largest difference between the clocks at which background work runs, in seconds. It is much longer than a query,
/// and much shorter than the ages at which jobs delete or end rows.
const MAX_DIFFERENCE_SECONDS: i64 = 5 * 60;

/// The interval of reads of Postgres's clock. Between them, its time is derived from the monotonic clock.
const READ_INTERVAL: Duration = Duration::from_secs(30);

/// The interval of reads while Postgres does not respond or the clocks differ too much.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Compares the system's clock with the clock of Postgres. Ignores the injected clock, which tests advance. Clones share
/// the last reading.
#[derive(Clone)]
pub(crate) struct ClockCheck {
    system: ClockRng,
    /// The last reading of Postgres's clock, and the time at which it was made.
    reading: watch::Sender<Option<(Time, Instant)>>,
    /// The time of the last attempt to read.
    attempted_at: Arc<Mutex<Option<Instant>>>,
}

impl ClockCheck {
    pub(crate) fn new(system: ClockRng) -> Self {
        Self { system, reading: watch::Sender::default(), attempted_at: Arc::default() }
    }

    /// Returns the lead of [`Store::excessive_clock_lead`] by the last reading. If the machine was suspended after the
    /// reading, the lead is too long, because the monotonic clock stopped.
    fn excessive_lead(&self) -> Option<i64> {
        let (time, read_at) = (*self.reading.borrow())?;
        let postgres = time.unix_seconds() + i64::try_from(read_at.elapsed().as_secs()).unwrap_or_default();
        let lead = self.system.now().unix_seconds() - postgres;
        (lead.abs() > MAX_DIFFERENCE_SECONDS).then_some(lead)
    }

    fn is_reading_due(&self) -> bool {
        let read_at = self.reading.borrow().map(|(_, read_at)| read_at);
        read_at.is_none_or(|at| at.elapsed() >= READ_INTERVAL) || self.excessive_lead().is_some()
    }

    async fn read(&self, connection: &mut Connection) -> Result<()> {
        let time = read_postgres_time(connection).await?;
        self.reading.send_replace(Some((time, Instant::now())));
        Ok(())
    }
}

impl Store {
    /// Returns the time of Postgres's clock. All times in rows come from [`Self::clock_rng`].
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn postgres_time(&self) -> Result<Time> {
        read_postgres_time(&mut *self.connection().await?).await
    }

    /// Returns the seconds by which the system's clock is ahead of Postgres if the clocks differ too much for background
    /// work. Returns `None` if Postgres has not responded yet: work that needs Postgres fails anyway, and other work must
    /// continue.
    pub async fn excessive_clock_lead(&self) -> Option<i64> {
        let check = self.clock_check();
        let mut attempted_at = check.attempted_at.lock().await;
        if attempted_at.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL) && check.is_reading_due() {
            let read = async { check.read(&mut *self.connection().await?).await };
            if let Err(error) = read.await {
                tracing::debug!(error = %error_chain(&error), "failed to read the clock of Postgres");
            }
            *attempted_at = Some(Instant::now());
        }
        drop(attempted_at);
        check.excessive_lead()
    }

    /// Returns the time for due times, leases and retry periods, on which other processes act. If the system's clock is
    /// wrong, it is the time by the clock of Postgres.
    ///
    /// # Errors
    /// Returns an error if the clock of Postgres must be read and Postgres is unavailable.
    pub async fn corrected_now(&self, connection: &mut Connection) -> Result<Time> {
        let check = self.clock_check();
        if check.excessive_lead().is_some() {
            check.read(connection).await?;
        }
        Ok(self.clock_rng().now().plus_seconds(-check.excessive_lead().unwrap_or_default()))
    }

    /// Returns whether this many seconds have passed since a time of [`Self::corrected_now`]; `false` without a time.
    pub async fn has_elapsed(&self, since: Option<Time>, seconds: i64) -> bool {
        let Some(since) = since else { return false };
        let lead = self.excessive_clock_lead().await.unwrap_or_default();
        since.plus_seconds(seconds) <= self.clock_rng().now().plus_seconds(-lead)
    }
}

async fn read_postgres_time(connection: &mut Connection) -> Result<Time> {
    #[derive(QueryableByName)]
    struct Clock {
        #[diesel(sql_type = Timestamptz)]
        time: Time,
    }
    let read = Prepared(diesel::sql_query("SELECT clock_timestamp() AS time"));
    let Clock { time } = read.get_result(connection).await?;
    Ok(time)
}
