//! The metrics of backups.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use super::error::{BackupError, Result};
use super::kind::Kind;

/// The outcome of an operation on a missing or corrupt object.
const DAMAGED: &str = "damaged";
/// The outcome of an operation that failed for another reason.
const FAILED: &str = "failed";

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct BackupMetrics {
    dumps: IntCounterVec,
    seconds: Histogram,
    pub bytes: IntCounter,
    pub skipped: IntCounter,
    restores: IntCounterVec,
    checks: IntCounterVec,
    /// By reason: `expired`, `surplus`, `interrupted` or `orphaned`.
    removed: IntCounterVec,
    pub unreported: IntGauge,
    /// Whether the node has databases and no store for their backups: 1 or 0.
    pub store_missing: IntGauge,
}

impl BackupMetrics {
    /// Creates and registers the metrics. Fails only if two have one name.
    pub fn new(registry: &Registry) -> std::result::Result<Self, prometheus::Error> {
        let vec = |name: &str, help: &str, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let seconds = HistogramOpts::new("svc_node_backup_dump_seconds", "Time of a successful dump, with its check");
        let metrics = Self {
            dumps: vec("svc_node_backup_dumps_total", "Dumps, by kind and outcome", &["kind", "outcome"])?,
            seconds: Histogram::with_opts(seconds.buckets(vec![0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 1800.0]))?,
            bytes: IntCounter::new("svc_node_backup_dump_bytes_total", "Size of the stored dumps, in bytes")?,
            skipped: IntCounter::new(
                "svc_node_backup_skipped_total",
                "Scheduled backups that were skipped because the database did not change",
            )?,
            restores: vec("svc_node_backup_restores_total", "Restores of generations, by outcome", &["outcome"])?,
            checks: vec("svc_node_backup_checks_total", "Checks of stored dumps, by outcome", &["outcome"])?,
            removed: vec("svc_node_backup_removed_total", "Deleted objects of dumps, by reason", &["reason"])?,
            unreported: IntGauge::new(
                "svc_node_backup_unreported",
                "Stored dumps that the control plane has not accepted yet",
            )?,
            store_missing: IntGauge::new(
                "svc_node_backup_store_missing",
                "Whether the node has databases and no store for their backups: 1 or 0",
            )?,
        };
        // Alerts need these series before the first failure.
        for outcome in [DAMAGED, FAILED] {
            metrics.checks.with_label_values(&[outcome]);
            for kind in Kind::ALL {
                metrics.dumps.with_label_values(&[kind.as_str(), outcome]);
            }
        }
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.bytes.clone()))?;
        registry.register(Box::new(metrics.skipped.clone()))?;
        registry.register(Box::new(metrics.unreported.clone()))?;
        registry.register(Box::new(metrics.store_missing.clone()))?;
        Ok(metrics)
    }

    pub fn count_dump<T>(&self, kind: Kind, elapsed: Duration, result: &Result<T>) {
        self.dumps.with_label_values(&[kind.as_str(), outcome(result)]).inc();
        if result.is_ok() {
            self.seconds.observe(elapsed.as_secs_f64());
        }
    }

    pub fn count_restore<T>(&self, result: &Result<T>) {
        self.restores.with_label_values(&[outcome(result)]).inc();
    }

    pub fn count_check<T>(&self, result: &Result<T>) {
        self.checks.with_label_values(&[outcome(result)]).inc();
    }

    pub fn count_removed(&self, reason: &str) {
        self.removed.with_label_values(&[reason]).inc();
    }
}

fn outcome<T>(result: &Result<T>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(BackupError::Missing(_) | BackupError::Corrupt(_)) => DAMAGED,
        Err(_) => FAILED,
    }
}
