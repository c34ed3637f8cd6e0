//! Scheduled backups.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use daemon::{Backoff, error_chain};
use futures_util::FutureExt as _;
use protocol::GenerationKind;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Service;
use super::error::{BackupError, Result, failure_text};
use super::grid::Grid;
use super::kind::Kind;
use super::project::BackupState;
use super::records::NewDump;
use crate::clock;
use crate::database::logins::Logins;
use crate::database::registry::Entry;

/// The longest time between two checks of the schedule.
const MAX_TICK: Duration = Duration::from_secs(5);
/// The longest time between two comparisons of the versions of the programs and the server.
const MAX_VERSION_INTERVAL: Duration = Duration::from_secs(60 * 60);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10 * 60);

/// The scheduled backups in progress, and those that failed.
#[derive(Default)]
struct Schedule {
    running: HashSet<String>,
    failed: HashMap<String, Failed>,
    backups: JoinSet<(String, Outcome)>,
}

/// The result of a scheduled backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
    /// The dump reached a limit of the node. Each attempt is expensive and probably reaches it again.
    LimitReached,
}

/// A project whose last backup failed.
struct Failed {
    backoff: Backoff,
    retry_at: Instant,
}

/// Makes the backups that are due.
pub(super) async fn run(service: Arc<Service>) {
    let mut schedule = Schedule::default();
    let tick = (service.interval / 4).min(MAX_TICK);
    let mut next_check = Instant::now();
    loop {
        if next_check <= Instant::now() {
            service.check_version().await;
            next_check = Instant::now() + service.interval.min(MAX_VERSION_INTERVAL);
        }
        if let Err(error) = schedule.start_due(&service).await {
            tracing::warn!(error = error_chain(error), "failed to read the schedule of backups");
        }
        let next_tick = sleep(tick);
        tokio::pin!(next_tick);
        loop {
            tokio::select! {
                () = &mut next_tick => break,
                Some(Ok((project, outcome))) = schedule.backups.join_next() => {
                    schedule.end(project, outcome, service.interval);
                }
            }
        }
    }
}

impl Schedule {
    async fn start_due(&mut self, service: &Arc<Service>) -> Result<()> {
        let (entries, now) = (service.registry.entries(), clock::now());
        let states = service.states().await?;
        let states: HashMap<&str, &BackupState> = states.iter().map(|state| (state.project.as_str(), state)).collect();
        for entry in entries {
            match states.get(entry.project.as_str()) {
                Some(state) if state.database == entry.desired.id => {
                    // During an operation, the report can contain the error of a restore.
                    if entry.desired.operation.is_none() {
                        service.publish(state);
                    }
                    if self.is_due(service, &entry, state, now) {
                        self.start(Arc::clone(service), entry, state.fingerprint.clone());
                    }
                }
                _ => service.begin_state(&entry, now).await?,
            }
        }
        Ok(())
    }

    fn is_due(&self, service: &Service, entry: &Entry, state: &BackupState, now: SystemTime) -> bool {
        let grid = Grid::new(service.interval, &entry.project);
        let waits = self.failed.get(&entry.project).is_some_and(|failed| Instant::now() < failed.retry_at);
        is_schedulable(entry)
            && !self.running.contains(&entry.project)
            && !waits
            && grid.is_due(state.scheduled_at, now)
    }

    fn start(&mut self, service: Arc<Service>, entry: Entry, fingerprint: Option<String>) {
        self.running.insert(entry.project.clone());
        self.backups.spawn(async move {
            let project = entry.project.clone();
            // After a panic, the backup is retried like after an error.
            let backup = AssertUnwindSafe(service.back_up(entry, fingerprint)).catch_unwind();
            (project, backup.await.unwrap_or(Outcome::Failed))
        });
    }

    fn end(&mut self, project: String, outcome: Outcome, interval: Duration) {
        self.running.remove(&project);
        if outcome == Outcome::Done {
            self.failed.remove(&project);
            return;
        }
        let new = || Failed { backoff: Backoff::up_to(MAX_RETRY_DELAY), retry_at: Instant::now() };
        let failed = self.failed.entry(project).or_insert_with(new);
        let delay = failed.backoff.next_delay();
        failed.retry_at = Instant::now() + if outcome == Outcome::LimitReached { interval.max(delay) } else { delay };
    }
}

/// Returns whether the database admits the node's logins and is not being replaced or removed.
fn is_schedulable(entry: &Entry) -> bool {
    entry.desired.operation.is_none() && !matches!(entry.logins, Logins::Closed)
}

impl Service {
    /// Makes a scheduled generation, unless the database is unchanged.
    async fn back_up(&self, entry: Entry, last: Option<String>) -> Outcome {
        let Err(error) = self.try_back_up(&entry, last).await else { return Outcome::Done };
        if self.current(&entry).is_none() {
            tracing::info!(project = entry.project, "an operation interrupted a scheduled backup");
            return Outcome::Failed;
        }
        let outcome = if matches!(error, BackupError::Limit(_)) { Outcome::LimitReached } else { Outcome::Failed };
        let message =
            failure_text(&error.to_string(), "The platform retries the backup. Earlier backups are not affected");
        tracing::warn!(project = entry.project, error = error_chain(error), "failed to back up a database");
        if let Err(error) = self.set_error(&entry.project, &entry.desired.id, &message).await {
            let error = error_chain(error);
            tracing::warn!(project = entry.project, error, "failed to record the failure of a backup");
        }
        outcome
    }

    async fn try_back_up(&self, entry: &Entry, last: Option<String>) -> Result<()> {
        let now = clock::now();
        // Look for long statements before reading the counters. If a statement ends between the two, the counters
        // already contain its writes.
        let is_counted = !self.has_long_statement(entry).await?;
        let is_unchanged = last.is_some() && last == self.fingerprint(entry).await.ok();
        if is_counted && is_unchanged && self.has_recent_generation(entry).await? {
            self.metrics.skipped.inc();
            return self.set_unchanged(entry, now).await;
        }
        while !self.try_dump(entry).await? {}
        Ok(())
    }

    /// Makes a scheduled generation. Returns false if the dump must be repeated as a long one.
    async fn try_dump(&self, entry: &Entry) -> Result<bool> {
        let is_long = self.long_dumps.contains(&entry.desired.id);
        let _long = self.slots.acquire_long(is_long).await;
        let _permit = self.slots.acquire_scheduled().await;
        // An operation may have begun while this task waited. The operation makes its own generation, so a scheduled
        // one is not needed.
        let Some(entry) = self.current(entry) else { return Ok(true) };
        // The fingerprint is taken before the dump, so that a write during the dump counts as a change. If this fails,
        // the next backup is not skipped.
        let fingerprint = self.fingerprint(&entry).await.ok();
        let kind = Kind::Generation(GenerationKind::Scheduled);
        let new = NewDump {
            project: &entry.project,
            database: &entry.desired.id,
            kind,
            epoch: entry.desired.epoch,
            cause: None,
            days: kind.days(entry.desired.backup_days),
        };
        let Some(dump) = self.make_in_time(&entry, &new, is_long).await? else { return Ok(false) };
        self.set_backed_up(&entry, &dump, fingerprint.as_deref()).await?;
        Ok(true)
    }

    /// Returns the current state of the database, if it is still the same database and has no operation.
    fn current(&self, entry: &Entry) -> Option<Entry> {
        let is_same = |it: &Entry| it.project == entry.project && it.desired.id == entry.desired.id;
        self.registry.entries().into_iter().find(is_same).filter(is_schedulable)
    }
}
