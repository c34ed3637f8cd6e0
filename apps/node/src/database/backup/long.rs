//! Long dumps. Long dumps of the schedule run one at a time, so they never occupy all permits: the compressed content of
//! a small database can be so large that its dump takes hours.
//!
//! Whether a dump is long is not known before it has run, so each of these dumps begins as a short one. If it does not
//! end in time, it is stopped and repeated as a long one. Dumps of operations have the time of long ones. Exports are
//! not repeated: the control plane ends them soon.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Service;
use super::error::Result;
use super::records::{Dump, NewDump};
use crate::database::registry::Entry;
use crate::database::server::Credentials;

/// The size limit of a plan for which a long dump may take the limit `long_dump_time`. A dump of ordinary content is
/// many times faster.
const BYTES_PER_TIME: u64 = 5 << 30;

/// The ids of the databases whose last dump was a long one.
#[derive(Default)]
pub struct LongDumps(Mutex<HashSet<String>>);

impl LongDumps {
    pub fn contains(&self, database: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(database)
    }

    fn set(&self, database: &str, is_long: bool) {
        let mut databases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_long {
            databases.insert(database.to_owned());
        } else {
            databases.remove(database);
        }
    }
}

impl Service {
    /// Makes a dump for the schedule. A long one requires the permit of long dumps. Returns `None` if a short one is too
    /// long: the caller must begin again.
    pub(super) async fn make_in_time(&self, entry: &Entry, new: &NewDump<'_>, is_long: bool) -> Result<Option<Dump>> {
        let began = Instant::now();
        let max_short = self.programs.limits.short_dump_time;
        if !is_long {
            let Ok(made) = timeout(max_short, self.make(new, &entry.credentials)).await else {
                tracing::info!(project = new.project, "stopped a dump that takes long; repeating it");
                self.long_dumps.set(new.database, true);
                return Ok(None);
            };
            return made.map(Some);
        }
        let made = self.make_long(new, &entry.credentials, entry.desired.size_bytes).await;
        if made.is_ok() && began.elapsed() <= max_short {
            self.long_dumps.set(new.database, false);
        }
        made.map(Some)
    }

    /// Makes a dump that may take long. `size_limit` is that of the database.
    pub(super) async fn make_long(
        &self,
        new: &NewDump<'_>,
        credentials: &Credentials,
        size_limit: u64,
    ) -> Result<Dump> {
        self.make_within(max_time(size_limit, self.programs.limits.long_dump_time), new, credentials).await
    }
}

/// Returns the longest time of a long dump of a database with this size limit. `time` is that for `BYTES_PER_TIME`.
fn max_time(size_limit: u64, time: Duration) -> Duration {
    let times = u32::try_from(size_limit.div_ceil(BYTES_PER_TIME)).unwrap_or(u32::MAX);
    time.saturating_mul(times.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_long_dump_grows_with_the_size_limit() {
        const HOUR: Duration = Duration::from_secs(60 * 60);
        for (size_limit, hours) in [(0, 1), (1 << 30, 1), (5 << 30, 1), (50 << 30, 10)] {
            assert_eq!(max_time(size_limit, HOUR), HOUR * hours, "{size_limit}");
        }
        assert!(max_time(u64::MAX, HOUR) > HOUR * 1000);
    }
}
