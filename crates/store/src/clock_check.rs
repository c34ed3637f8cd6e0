//! The comparison of the system's clock with the clock of Postgres.

use std::time::{Duration, Instant};

use diesel::QueryableByName;
use diesel::sql_types::Timestamptz;
use diesel_async::RunQueryDsl as _;
use kernel::{ClockRng, Time};
use tokio::sync::watch;

use crate::{Connection, Prepared, Result, Store};

/// The largest difference between the clocks at which background work runs, in milliseconds. It is much longer than a
/// query, and much shorter than the ages at which jobs delete or end rows.
const MAX_DIFFERENCE_MILLIS: i64 = 5 * 60 * 1000;

/// The largest difference that is not corrected, in milliseconds. Two servers then differ by at most twice as much, which
/// is less than the rest of a saga's lease after the timeout of a step.
pub(crate) const MAX_UNCORRECTED_MILLIS: i64 = 1000;

/// The interval of reads of Postgres's clock. Between them, its time is derived from the monotonic clock.
const READ_INTERVAL: Duration = Duration::from_secs(30);

/// Compares the system's clock with the clock of Postgres. Ignores the injected clock, which tests advance. Clones share
/// the last reading.
#[derive(Clone)]
pub(crate) struct ClockCheck {
    system: ClockRng,
    reading: watch::Sender<Option<Reading>>,
}

/// A reading of Postgres's clock.
#[derive(Clone, Copy)]
struct Reading {
    time: Time,
    sent_at: Instant,
    received_at: Instant,
}

impl Reading {
    /// Returns the milliseconds by which the system's clock is ahead of Postgres, or 0 if no correction is necessary. If
    /// the machine was suspended after the reading, the lead is too long, because the monotonic clock stopped.
    fn lead(self, now: Instant, system: Time) -> i64 {
        let lead = |read_at: Instant| {
            let passed = i64::try_from(now.duration_since(read_at).as_millis()).unwrap_or_default();
            system.unix_millis() - self.time.unix_millis() - passed
        };
        // Postgres read its clock between the two times. A slow query must not look like a difference.
        let lead = 0_i64.clamp(lead(self.sent_at), lead(self.received_at));
        if lead.abs() > MAX_UNCORRECTED_MILLIS { lead } else { 0 }
    }
}

impl ClockCheck {
    pub(crate) fn new(system: ClockRng) -> Self {
        Self { system, reading: watch::Sender::default() }
    }

    /// Returns [`Reading::lead`] of the last reading, or `None` without a reading.
    fn lead(&self) -> Option<i64> {
        self.reading.borrow().map(|reading| reading.lead(Instant::now(), self.system.now()))
    }

    /// Returns the lead of [`Store::excessive_clock_lead`] by the last reading.
    pub(crate) fn excessive_lead(&self) -> Option<i64> {
        self.lead().filter(|lead| lead.abs() > MAX_DIFFERENCE_MILLIS).map(|lead| lead / 1000)
    }

    /// Returns whether the clock of Postgres must be read. A difference must be confirmed by a new reading.
    fn is_reading_due(&self) -> bool {
        let sent_at = self.reading.borrow().map(|reading| reading.sent_at);
        sent_at.is_none_or(|at| at.elapsed() >= READ_INTERVAL) || self.lead() != Some(0)
    }

    async fn read(&self, connection: &mut Connection) -> Result<()> {
        let sent_at = Instant::now();
        let time = read_postgres_time(connection).await?;
        self.reading.send_replace(Some(Reading { time, sent_at, received_at: Instant::now() }));
        Ok(())
    }
}

impl Store {
    /// Returns the time of Postgres's clock. For the times in rows, use [`Self::clock_rng`] or [`Self::corrected_now`].
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn postgres_time(&self) -> Result<Time> {
        read_postgres_time(&mut *self.connection().await?).await
    }

    /// Returns the seconds by which the system's clock is ahead of Postgres if the clocks differ too much for background
    /// work.
    ///
    /// # Errors
    /// Returns an error if the clock of Postgres must be read and Postgres is unavailable.
    pub async fn excessive_clock_lead(&self) -> Result<Option<i64>> {
        let check = self.clock_check();
        if check.is_reading_due() {
            check.read(&mut *self.connection().await?).await?;
        }
        Ok(check.excessive_lead())
    }

    /// Returns the time for due times, leases and retry periods, on which other processes act. If the system's clock
    /// differs by more than a second, it is the time by the clock of Postgres.
    ///
    /// # Errors
    /// Returns an error if the clock of Postgres must be read and Postgres is unavailable.
    pub async fn corrected_now(&self, connection: &mut Connection) -> Result<Time> {
        let check = self.clock_check();
        if check.is_reading_due() {
            check.read(connection).await?;
        }
        Ok(self.last_corrected_now())
    }

    /// Returns the time of [`Self::corrected_now`] by the last reading. It is too early after a suspension of the machine.
    pub(crate) fn last_corrected_now(&self) -> Time {
        self.clock_rng().now().plus_millis(-self.clock_check().lead().unwrap_or_default())
    }

    /// Returns whether this many seconds have passed since a time of [`Self::corrected_now`]; `false` without a time. For
    /// work under a lease: its claim has read the clock of Postgres.
    #[must_use]
    pub fn has_elapsed(&self, since: Option<Time>, seconds: i64) -> bool {
        since.is_some_and(|since| since.plus_seconds(seconds) <= self.last_corrected_now())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_above_a_second_is_corrected_unless_the_query_explains_it() {
        // In milliseconds: the lead if Postgres read its clock at the end of the query, the duration of the query, and the
        // expected lead.
        for (lead, query, expected) in [
            (1000, 0, 0),
            (-1000, 0, 0),
            (1001, 0, 1001),
            (-1001, 0, -1001),
            (10_000, 10_000, 0),
            (0, 10_000, 0),
            (5000, 2000, 3000),
            (-3000, 2000, -3000),
        ] {
            let sent_at = Instant::now();
            let received_at = sent_at + Duration::from_millis(query);
            let reading = Reading { time: Time::UNIX_EPOCH, sent_at, received_at };
            let system = Time::UNIX_EPOCH.plus_seconds(10).plus_millis(lead);
            assert_eq!(reading.lead(received_at + Duration::from_secs(10), system), expected, "{lead} {query}");
        }
    }
}
