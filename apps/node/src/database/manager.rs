//! Starts a task for each project that has a database here, and passes the desired state to it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use protocol::Database;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::backup::FullState;
use super::project::Project;
use super::revoked_roles::empty_roles;
use super::sweep::{Swept, remove_tombstones, sweep};
use super::{DatabaseChanges, DesiredDatabase, Shared};

const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Every second sweep measures the usage of the databases.
const USAGE_SWEEPS: u64 = 2;
/// Every twelfth sweep removes tombstones.
const TOMBSTONE_SWEEPS: u64 = 12;
/// The delay before the removal of the objects of revoked roles is repeated after a failure. A backup can hold the locks
/// for hours.
const ROLES_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The manager: a task that owns the tasks of the projects.
pub struct Manager {
    shared: Arc<Shared>,
    projects: BTreeMap<String, Handle>,
    /// Projects that the last full state lists without a readable part. Their databases stay unchanged.
    kept: BTreeSet<String>,
    /// Whether a full state arrived since the start. Before that, no database is removed.
    is_complete: bool,
    tasks: JoinSet<()>,
    /// The running sweep, if any. It is a separate task, because it takes long with large databases and must not delay
    /// changes.
    sweeps: JoinSet<anyhow::Result<Swept>>,
    /// The running removal of the objects of revoked roles, if any, and the time of the next one.
    role_removals: JoinSet<bool>,
    next_role_removal: Instant,
    /// The running removal of tombstones, if any.
    removals: JoinSet<anyhow::Result<bool>>,
    sweeps_without_removal: u64,
    /// Whether the last removal found clocks that differ.
    pauses_removal: bool,
}

struct Handle {
    desired: watch::Sender<DesiredDatabase>,
    wake: Arc<Notify>,
}

impl Manager {
    /// Creates a manager that begins with the saved desired state.
    pub fn new(shared: Arc<Shared>, saved: Vec<(String, Database)>) -> Self {
        let (projects, kept) = (BTreeMap::new(), BTreeSet::new());
        let mut manager = Self {
            shared,
            projects,
            kept,
            is_complete: false,
            tasks: JoinSet::new(),
            sweeps: JoinSet::new(),
            role_removals: JoinSet::new(),
            next_role_removal: Instant::now(),
            removals: JoinSet::new(),
            // The first sweep also removes tombstones.
            sweeps_without_removal: TOMBSTONE_SWEEPS,
            pauses_removal: false,
        };
        for (project, database) in saved {
            manager.set(project, DesiredDatabase::Saved(Arc::new(database)));
        }
        manager
    }

    /// Runs until the sender of the changes is dropped.
    pub async fn run(mut self, mut changes: UnboundedReceiver<DatabaseChanges>) {
        let mut ticks = interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sweeps = 0;
        loop {
            tokio::select! {
                changed = changes.recv() => match changed {
                    Some(changed) => self.apply(changed),
                    None => return,
                },
                _ = ticks.tick() => {
                    sweeps += 1;
                    self.sweep(sweeps);
                }
                Some(ended) = self.sweeps.join_next() => match ended.map_err(Into::into).flatten() {
                    Ok(swept) => self.on_swept(swept),
                    Err(error) => tracing::warn!(error = format!("{error:#}"), "failed to compare the databases"),
                },
                Some(ended) = self.role_removals.join_next() => match ended {
                    Ok(true) => {}
                    Ok(false) => self.next_role_removal = Instant::now() + ROLES_RETRY_DELAY,
                    Err(error) => tracing::error!(%error, "the removal of the objects of revoked roles failed"),
                },
                Some(ended) = self.removals.join_next() => self.on_removed(ended.map_err(Into::into).flatten()),
                Some(ended) = self.tasks.join_next() => if let Err(error) = ended {
                    tracing::error!(%error, "the task of a database failed");
                },
            }
        }
    }

    fn apply(&mut self, changes: DatabaseChanges) {
        let DatabaseChanges { is_full, changed, kept, deleted_backups, is_restored, is_authorized } = changes;
        if let Some(is_authorized) = is_authorized {
            self.shared.is_authorized.send_replace(is_authorized);
        }
        if is_restored {
            self.shared.backups.report_again();
        }
        if is_full {
            let listed: BTreeSet<&String> = changed.iter().map(|(project, _)| project).chain(&kept).collect();
            for (project, handle) in &self.projects {
                if !listed.contains(project) {
                    self.shared.backups.desire(project, None);
                    handle.set(DesiredDatabase::Removed);
                }
            }
            self.kept = kept;
            self.is_complete = true;
        }
        for (project, database) in changed {
            let gone = if is_full { DesiredDatabase::Removed } else { DesiredDatabase::Withdrawn };
            self.set(project, database.map_or(gone, |database| DesiredDatabase::Present(Arc::new(database))));
        }
        if is_full {
            let unavailable = self.kept.clone();
            self.shared.backups.complete_desired(FullState { unavailable, deleted: deleted_backups });
            // The tasks are woken after the parts are set, so that they report the new state.
            self.shared.statuses.repeat();
            for handle in self.projects.values() {
                handle.wake.notify_one();
            }
        }
    }

    fn set(&mut self, project: String, desired: DesiredDatabase) {
        self.kept.remove(&project);
        self.shared.backups.desire(&project, desired.part());
        match self.projects.get(&project) {
            Some(handle) if !handle.desired.is_closed() => handle.set(desired),
            // There is no task, or the task has ended because it removed its database.
            _ => {
                let (sender, receiver) = watch::channel(desired);
                let wake = Arc::new(Notify::new());
                let task = Project::new(project.clone(), Arc::clone(&self.shared), receiver, Arc::clone(&wake));
                self.tasks.spawn(task.run());
                self.projects.insert(project, Handle { desired: sender, wake });
            }
        }
    }

    fn sweep(&mut self, number: u64) {
        let (ended, running) =
            mem::take(&mut self.projects).into_iter().partition(|(_, handle)| handle.desired.is_closed());
        self.projects = running;
        for (project, handle) in ended {
            // This state arrived while the task ended, so a new task must apply it.
            let desired = handle.desired.borrow().clone();
            if desired.part().is_some() {
                self.set(project, desired);
            }
        }
        if self.sweeps.is_empty() {
            let shared = Arc::clone(&self.shared);
            self.sweeps.spawn(async move { sweep(&shared, number.is_multiple_of(USAGE_SWEEPS)).await });
        }
        self.sweeps_without_removal += 1;
        let is_due = self.sweeps_without_removal >= TOMBSTONE_SWEEPS;
        // Before the first response of the control plane, the clocks cannot be compared.
        if is_due && self.removals.is_empty() && self.shared.clock.is_known() {
            // The removal is a separate task, because dropping a large database takes long.
            let shared = Arc::clone(&self.shared);
            self.removals.spawn(async move { remove_tombstones(&shared).await });
        }
    }

    fn on_removed(&mut self, removed: anyhow::Result<bool>) {
        match removed {
            Ok(true) => {
                self.sweeps_without_removal = 0;
                self.pauses_removal = false;
            }
            // The next sweep tries the removal again.
            Ok(false) if !self.pauses_removal => {
                self.pauses_removal = true;
                tracing::warn!("the clocks of the node, Postgres and the control plane differ: deletions pause");
            }
            Ok(false) => {}
            Err(error) => {
                self.sweeps_without_removal = 0;
                let error = format!("{error:#}");
                tracing::warn!(error, "failed to drop the tombstones whose retention is over");
            }
        }
    }

    fn on_swept(&mut self, swept: Swept) {
        let Swept { differing, unused, projects } = swept;
        if self.is_complete {
            self.remove_unlisted(projects);
        }
        if !unused.is_empty() && self.role_removals.is_empty() && self.next_role_removal <= Instant::now() {
            let shared = Arc::clone(&self.shared);
            self.role_removals.spawn(async move { empty_roles(&shared, unused).await });
        }
        for project in &differing {
            if let Some(handle) = self.projects.get(project) {
                self.shared.metrics.repairs.inc();
                handle.wake.notify_one();
            }
        }
    }

    /// Removes the databases of projects that the last full state did not list and that have no task, for example after
    /// a restart.
    fn remove_unlisted(&mut self, projects: Vec<String>) {
        for project in projects {
            let has_task = self.projects.get(&project).is_some_and(|handle| !handle.desired.is_closed());
            if !has_task && !self.kept.contains(&project) {
                self.set(project, DesiredDatabase::Removed);
            }
        }
    }
}

impl Handle {
    /// Wakes the task only if the state changes.
    fn set(&self, desired: DesiredDatabase) {
        self.desired.send_if_modified(|current| {
            let is_other = *current != desired;
            *current = desired;
            is_other
        });
    }
}
