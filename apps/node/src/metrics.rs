//! The node's metrics, and the listener that serves them to Prometheus.

use std::io;
use std::net::{SocketAddr, TcpListener};

use actix_web::dev::Server;
use actix_web::web::{self, Data};
use actix_web::{App, HttpServer};
use daemon::show_metrics;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::ai::AiMetrics;
use crate::auth::AuthMetrics;
use crate::database::DatabaseMetrics;
use crate::database::backup::BackupMetrics;
use crate::mail::MailMetrics;
use crate::pg::CallMetrics;
use crate::storage::StorageMetrics;
use crate::tls::TlsMetrics;

/// The outcome of a start for which no memory was free.
pub const START_WITHOUT_MEMORY: &str = "no_memory";

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    /// Whether workers run with a protection: 1 or 0. Empty on a node that does not run worker code.
    pub worker_protections: IntGaugeVec,
    /// The connections that workers requested, by outcome.
    pub egress_connections: IntCounterVec,
    /// The starts of worker processes, by outcome: `ready`, `failed` or [`START_WITHOUT_MEMORY`].
    pub worker_starts: IntCounterVec,
    /// Replacements of a served worker by one that has started, by cause: `deploy` or `environment`.
    pub worker_swaps: IntCounterVec,
    /// The private memory of all worker processes in bytes.
    pub worker_memory: IntGauge,
    /// The limit on this memory; 0 on a node that does not run worker code.
    pub worker_memory_limit: IntGauge,
    /// Worker processes that were stopped to free memory.
    pub worker_memory_stops: IntCounter,
    /// The metrics of the object storage.
    pub storage: StorageMetrics,
    /// The metrics of the databases.
    pub databases: DatabaseMetrics,
    /// The metrics of their backups.
    pub backups: BackupMetrics,
    /// The metrics of `env.db`.
    pub calls: CallMetrics,
    /// The metrics of `env.ai`.
    pub ai: AiMetrics,
    /// The metrics of mail.
    pub mail: MailMetrics,
    /// The metrics of app user auth.
    pub auth: AuthMetrics,
    /// The metrics of TLS.
    pub tls: TlsMetrics,
    registry: Registry,
}

impl Metrics {
    /// Creates the metrics. Fails only if two metrics have the same name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let protections = Opts::new("svc_node_worker_protection", "Whether workers run with a protection: 1 or 0");
        let connections =
            Opts::new("svc_node_egress_connections_total", "Connections that workers requested, by outcome");
        let starts = Opts::new("svc_node_worker_starts_total", "Starts of worker processes, by outcome");
        let swaps = Opts::new(
            "svc_node_worker_swaps_total",
            "Replacements of a served worker by one that has started, by cause",
        );
        let worker_protections = IntGaugeVec::new(protections, &["protection"])?;
        let egress_connections = IntCounterVec::new(connections, &["outcome"])?;
        let worker_starts = IntCounterVec::new(starts, &["outcome"])?;
        let worker_swaps = IntCounterVec::new(swaps, &["cause"])?;
        let registry = Registry::new();
        registry.register(Box::new(worker_protections.clone()))?;
        for counters in [&egress_connections, &worker_starts, &worker_swaps] {
            registry.register(Box::new(counters.clone()))?;
        }
        // An alert needs this series before the first event.
        worker_starts.with_label_values(&[START_WITHOUT_MEMORY]);
        let worker_memory =
            IntGauge::new("svc_node_worker_memory_bytes", "Private memory of all worker processes in bytes")?;
        let worker_memory_limit = IntGauge::new(
            "svc_node_worker_memory_limit_bytes",
            "Limit on the memory of all worker processes in bytes",
        )?;
        for gauge in [&worker_memory, &worker_memory_limit] {
            registry.register(Box::new(gauge.clone()))?;
        }
        let worker_memory_stops =
            IntCounter::new("svc_node_worker_memory_stops_total", "Worker processes stopped to free memory")?;
        registry.register(Box::new(worker_memory_stops.clone()))?;
        let storage = StorageMetrics::new(&registry)?;
        let (databases, backups) = (DatabaseMetrics::new(&registry)?, BackupMetrics::new(&registry)?);
        let (calls, ai) = (CallMetrics::new(&registry)?, AiMetrics::new(&registry)?);
        let (mail, auth) = (MailMetrics::new(&registry)?, AuthMetrics::new(&registry)?);
        let tls = TlsMetrics::new(&registry)?;
        Ok(Self {
            worker_protections,
            egress_connections,
            worker_starts,
            worker_swaps,
            worker_memory,
            worker_memory_limit,
            worker_memory_stops,
            storage,
            databases,
            backups,
            calls,
            ai,
            mail,
            auth,
            tls,
            registry,
        })
    }

    /// Counts a start of a worker process.
    pub fn count_start(&self, outcome: &str) {
        self.worker_starts.with_label_values(&[outcome]).inc();
    }
}

/// Starts to serve `GET /metrics`.
pub fn listen(address: SocketAddr, metrics: Metrics) -> io::Result<(SocketAddr, Server)> {
    let listener = TcpListener::bind(address)?;
    let (address, registry) = (listener.local_addr()?, metrics.registry);
    let app = move || App::new().app_data(Data::new(registry.clone())).route("/metrics", web::get().to(show_metrics));
    Ok((address, HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run()))
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    /// The counters of the recommended alerts (docs/operations.md and the pages of the features).
    const COUNTERS_OF_ALERTS: [&str; 8] = [
        r#"svc_node_ai_calls_total{outcome="no_upstream"} 0"#,
        r#"svc_node_auth_sign_ins_total{outcome="provider_failed",provider="codehost"} 0"#,
        r#"svc_node_backup_checks_total{outcome="damaged"} 0"#,
        r#"svc_node_backup_dumps_total{kind="scheduled",outcome="failed"} 0"#,
        r#"svc_node_database_reconcile_failures_total 0"#,
        r#"svc_node_storage_operations_total{operation="get",outcome="storage_unavailable"} 0"#,
        r#"svc_node_storage_operations_total{operation="put",outcome="storage_unavailable"} 0"#,
        r#"svc_node_worker_starts_total{outcome="no_memory"} 0"#,
    ];

    #[test]
    fn counters_of_alerts_exist_before_the_first_event() {
        let text = TextEncoder::new().encode_to_string(&Metrics::new().unwrap().registry.gather()).unwrap();
        for counter in COUNTERS_OF_ALERTS {
            assert!(text.lines().any(|line| line == counter), "{counter}: {text}");
        }
    }
}
