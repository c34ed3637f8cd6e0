//! The grid of the schedule.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha256::Digest;

/// The points in time at which the backups of a project are due: one in each interval, with an offset that spreads the
/// projects of a node.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    interval: Duration,
    offset: Duration,
}

impl Grid {
    pub fn new(interval: Duration, project: &str) -> Self {
        // At least a millisecond, so that it can be a divisor.
        let interval = interval.max(Duration::from_millis(1));
        let digits: String = Digest::of(project.as_bytes()).hex().chars().take(12).collect();
        let hash = u128::from_str_radix(&digits, 16).unwrap_or_default();
        Self { interval, offset: milliseconds(hash % interval.as_millis()) }
    }

    /// Returns whether a backup is due if the last one was at `scheduled_at`. A time in the future means that the clock
    /// was set back; then a backup is due too.
    pub fn is_due(&self, scheduled_at: SystemTime, now: SystemTime) -> bool {
        scheduled_at < self.last(now) || scheduled_at > now
    }

    /// Returns the last due time that is not after `now`.
    fn last(&self, now: SystemTime) -> SystemTime {
        let since = now.duration_since(UNIX_EPOCH + self.offset).unwrap_or_default();
        now - milliseconds(since.as_millis() % self.interval.as_millis())
    }
}

fn milliseconds(count: u128) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_one_interval_apart_and_differ_between_projects() {
        let hour = Duration::from_secs(3600);
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let offsets: Vec<Duration> = ["prj_a", "prj_b", "prj_c"].map(|it| Grid::new(hour, it).offset).to_vec();
        assert!(offsets.iter().all(|offset| *offset < hour) && offsets[0] != offsets[1] && offsets[1] != offsets[2]);
        let grid = Grid::new(hour, "prj_a");
        let last = grid.last(now);
        assert!(last <= now && now < last + hour);
        assert_eq!(grid.last(last), last);
        assert_eq!(grid.last(last + hour - Duration::from_millis(1)), last);
        assert_eq!(grid.last(last + hour), last + hour);
        assert!(!grid.is_due(last, now) && !grid.is_due(now, now));
        assert!(grid.is_due(last - Duration::from_millis(1), now), "older than the last point");
        assert!(grid.is_due(now + hour * 24, now), "the clock was set back");
    }
}
