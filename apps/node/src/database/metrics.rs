//! The metrics of the databases.

use std::time::Duration;

use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use protocol::DatabaseOperationKind;

use super::logins::Logins;

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct DatabaseMetrics {
    /// By the state of the logins.
    databases: IntGaugeVec,
    pub connections: IntGauge,
    /// The largest age of the oldest transaction id of a database.
    pub oldest_id_age: IntGauge,
    /// The used part of the queue of notifications, from 0 to 1.
    pub notification_queue: Gauge,
    /// By kind and outcome.
    operations: IntCounterVec,
    /// The differences that sweeps found.
    pub repairs: IntCounter,
    pub reconcile_failures: IntCounter,
    reconcile_seconds: Histogram,
}

impl DatabaseMetrics {
    /// Creates and registers the metrics. Fails only if two have one name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let databases = Opts::new("svc_node_databases", "Databases of projects, by the state of their logins");
        let operations =
            Opts::new("svc_node_database_operations_total", "Operations on databases, by kind and outcome");
        let seconds = HistogramOpts::new(
            "svc_node_database_reconcile_seconds",
            "The time in which a database was compared with its desired state and changed",
        );
        let metrics = Self {
            databases: IntGaugeVec::new(databases, &["logins"])?,
            connections: IntGauge::new("svc_node_database_connections", "Sessions in databases of projects")?,
            oldest_id_age: IntGauge::new(
                "svc_node_database_oldest_id_age",
                "The largest number of transaction ids or multixact ids after the oldest one of a database",
            )?,
            notification_queue: Gauge::new(
                "svc_node_database_notification_queue_usage",
                "The used part of the queue of notifications of Postgres, from 0 to 1",
            )?,
            operations: IntCounterVec::new(operations, &["kind", "outcome"])?,
            repairs: IntCounter::new(
                "svc_node_database_repairs_total",
                "Databases that differed from their desired state without a change of it",
            )?,
            reconcile_failures: IntCounter::new(
                "svc_node_database_reconcile_failures_total",
                "Failed attempts to change a database into its desired state",
            )?,
            reconcile_seconds: Histogram::with_opts(seconds)?,
        };
        registry.register(Box::new(metrics.databases.clone()))?;
        registry.register(Box::new(metrics.connections.clone()))?;
        registry.register(Box::new(metrics.oldest_id_age.clone()))?;
        registry.register(Box::new(metrics.notification_queue.clone()))?;
        registry.register(Box::new(metrics.operations.clone()))?;
        registry.register(Box::new(metrics.repairs.clone()))?;
        registry.register(Box::new(metrics.reconcile_failures.clone()))?;
        registry.register(Box::new(metrics.reconcile_seconds.clone()))?;
        Ok(metrics)
    }

    pub fn observe_reconcile(&self, duration: Duration) {
        self.reconcile_seconds.observe(duration.as_secs_f64());
    }

    /// Counts a completed operation: `done` or `failed`.
    pub fn count_operation(&self, kind: DatabaseOperationKind, outcome: &str) {
        let kind = match kind {
            DatabaseOperationKind::RestoreGeneration => "restore_generation",
            DatabaseOperationKind::Delete => "delete",
        };
        self.operations.with_label_values(&[kind, outcome]).inc();
    }

    /// Sets the number of databases by the state of their logins.
    pub fn set_databases(&self, databases: &[Logins]) {
        let states =
            [Logins::Open { read_only: false }, Logins::Open { read_only: true }, Logins::NodeOnly, Logins::Closed];
        for state in states {
            let count = databases.iter().filter(|it| **it == state).count();
            self.databases.with_label_values(&[state.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
