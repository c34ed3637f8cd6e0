//! The newest report about each database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::DatabaseReport;

use crate::observe::Observer;

/// A smaller change of the size is not reported.
pub const MIN_SIZE_CHANGE: u64 = 1 << 20;

/// The newest reports by project. Clones share them.
#[derive(Clone)]
pub struct Statuses {
    observer: Observer,
    reports: Arc<Mutex<BTreeMap<String, DatabaseReport>>>,
}

impl Statuses {
    /// No reports.
    pub fn new(observer: Observer) -> Self {
        Self { observer, reports: Arc::default() }
    }

    /// Changes the report of a project, and sends it if it differs. Without effect for a project whose database the
    /// node has not seen.
    pub fn update(&self, project: &str, change: impl FnOnce(&mut DatabaseReport)) {
        let mut reports = self.lock();
        let Some(report) = reports.get_mut(project) else { return };
        let previous = report.clone();
        change(report);
        if *report != previous {
            self.observer.report_database(project, report);
        }
    }

    /// As [`Self::update`], and begins with an empty report if there is none of this database.
    pub fn apply(&self, project: &str, database: &str, change: impl FnOnce(&mut DatabaseReport)) {
        let mut reports = self.lock();
        if reports.get(project).is_none_or(|report| report.database != database) {
            let mut report = empty(database);
            change(&mut report);
            self.observer.report_database(project, &report);
            reports.insert(project.to_owned(), report);
        } else {
            drop(reports);
            self.update(project, change);
        }
    }

    /// The reported size of a database in bytes; 0 without a report.
    pub(super) fn size(&self, project: &str) -> u64 {
        self.lock().get(project).map_or(0, |report| report.size_bytes)
    }

    /// Removes the report of a project.
    pub(super) fn remove(&self, project: &str) {
        self.lock().remove(project);
    }

    /// Sends all reports again: the control plane may have been restored from a backup.
    pub(super) fn repeat(&self) {
        for (project, report) in &*self.lock() {
            self.observer.report_database(project, report);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, DatabaseReport>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
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
