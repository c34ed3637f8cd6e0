//! The newest report about each database.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::DatabaseReport;

use crate::observe::Observer;

/// A smaller change of the size is not reported.
pub const MIN_SIZE_CHANGE: u64 = 1 << 20;

/// The newest reports by project. Clones share them.
#[derive(Clone)]
pub struct Statuses {
    observer: Observer,
    reports: Arc<Mutex<BTreeMap<String, Status>>>,
}

struct Status {
    report: DatabaseReport,
    /// Whether the next update sends the report even if it did not change.
    is_due: bool,
}

impl Statuses {
    /// Creates an empty set of reports.
    pub fn new(observer: Observer) -> Self {
        Self { observer, reports: Arc::default() }
    }

    /// Changes the report of a project, and sends the report if it differs. Has no effect on a project whose database
    /// the node has not seen.
    pub fn update(&self, project: &str, change: impl FnOnce(&mut DatabaseReport)) {
        let mut reports = self.lock();
        let Some(status) = reports.get_mut(project) else { return };
        let previous = status.report.clone();
        change(&mut status.report);
        if status.report != previous {
            self.observer.report_database(project, &status.report);
        }
    }

    /// Records the result of a reconciliation. Differs from [`Self::update`] in two ways: it creates the report if
    /// there is none of this database, and it sends a report that is due even if it did not change.
    pub fn apply(&self, project: &str, database: &str, change: impl FnOnce(&mut DatabaseReport)) {
        let mut reports = self.lock();
        let status = reports.entry(project.to_owned()).or_insert_with(|| Status::new(database));
        if status.report.database != database {
            *status = Status::new(database);
        }
        let previous = status.report.clone();
        change(&mut status.report);
        if mem::take(&mut status.is_due) || status.report != previous {
            self.observer.report_database(project, &status.report);
        }
    }

    /// Returns the reported size of a database in bytes; 0 without a report.
    pub(super) fn size(&self, project: &str) -> u64 {
        self.lock().get(project).map_or(0, |status| status.report.size_bytes)
    }

    /// Removes the report of a project.
    pub(super) fn remove(&self, project: &str) {
        self.lock().remove(project);
    }

    /// Marks every report as due, so that the next reconciliation sends it again. The control plane may have been
    /// restored from a backup.
    pub(super) fn repeat(&self) {
        for status in self.lock().values_mut() {
            status.is_due = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Status>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Status {
    fn new(database: &str) -> Self {
        Self { report: empty(database), is_due: true }
    }
}

fn empty(database: &str) -> DatabaseReport {
    DatabaseReport {
        database: database.to_owned(),
        revision: 0,
        ready: false,
        size_bytes: 0,
        read_only: false,
        fresh_at: None,
        checked_at: None,
        backup_error: None,
        recovered_from: None,
        operation: None,
    }
}
