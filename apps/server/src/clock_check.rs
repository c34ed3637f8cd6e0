//! The comparison of this server's clock with the clock of Postgres.

use kernel::ClockRng;
use store::Store;

/// The largest difference between the clocks at which background jobs run, in seconds. It is much longer than a query,
/// and much shorter than the ages at which jobs delete or end rows.
const MAX_DIFFERENCE_SECONDS: i64 = 5 * 60;

/// Compares the system's clock with the clock of Postgres. Ignores the injected clock, which tests advance.
#[derive(Clone)]
pub(crate) struct ClockCheck {
    store: Store,
    system: ClockRng,
}

impl ClockCheck {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, system: ClockRng::system() }
    }

    /// Returns the seconds by which this server is ahead of Postgres if the clocks differ too much. Returns `None` if
    /// Postgres does not respond: a job that needs Postgres fails anyway, and the others must continue.
    pub(crate) async fn excessive_lead(&self) -> Option<i64> {
        let postgres = self.store.postgres_time().await.ok()?;
        let lead = self.system.now().unix_seconds() - postgres.unix_seconds();
        (lead.abs() > MAX_DIFFERENCE_SECONDS).then_some(lead)
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
