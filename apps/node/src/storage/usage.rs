//! Reports on usage.

use std::collections::BTreeSet;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Storage;
use super::error::Result;
use super::grant::Grant;
use crate::observe::Observer;

/// The prefixes whose usage changed since the last report.
pub struct UsageReports {
    observer: Observer,
    changed: Mutex<BTreeSet<String>>,
    /// Whether the next reports cover all prefixes, as the first ones after a start: a restart loses pending reports.
    reports_again: AtomicBool,
}

impl UsageReports {
    pub fn new(observer: Observer) -> Self {
        Self { observer, changed: Mutex::default(), reports_again: AtomicBool::new(true) }
    }

    pub const fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Reports the usage of a prefix at the next interval.
    pub fn add_changed(&self, prefix: &str) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !changed.contains(prefix) {
            changed.insert(prefix.to_owned());
        }
    }

    fn take_changed(&self) -> BTreeSet<String> {
        mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Storage {
    /// Reports the usage of all prefixes again, because the control plane was restored from a backup.
    pub fn report_again(&self) {
        self.usage.reports_again.store(true, Ordering::Relaxed);
    }

    /// Reports the usage immediately: a put was refused because of the quota.
    pub(super) async fn report_now(&self, grant: &Grant) -> Result<()> {
        let changed = BTreeSet::from([grant.prefix.clone()]);
        self.report(changed).await
    }

    async fn report_all(&self) -> Result<()> {
        for (_, row) in self.index.read(|tables| tables.rows()).await? {
            self.usage.observer.report_storage(&row.project, &row.report());
        }
        Ok(())
    }

    async fn report(&self, prefixes: BTreeSet<String>) -> Result<()> {
        let rows = self.index.read(move |tables| {
            prefixes
                .iter()
                .filter_map(|prefix| tables.row(prefix).transpose())
                .collect::<std::result::Result<Vec<_>, _>>()
        });
        for row in rows.await? {
            self.usage.observer.report_storage(&row.project, &row.report());
        }
        Ok(())
    }
}

/// Reports the usage that changed, at this interval.
pub(super) async fn report_usage(storage: Arc<Storage>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        if storage.usage.reports_again.swap(false, Ordering::Relaxed) && storage.report_all().await.is_err() {
            // The cause is logged. The next interval tries again.
            storage.report_again();
        }
        let changed = storage.usage.take_changed();
        if !changed.is_empty() && storage.report(changed.clone()).await.is_err() {
            // The cause is logged. The next interval tries again.
            changed.iter().for_each(|prefix| storage.usage.add_changed(prefix));
        }
    }
}
