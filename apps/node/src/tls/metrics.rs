//! The metrics of TLS.

use ::tls::ListenerMetrics;
use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

/// The metrics. Clones share their values.
#[derive(Debug, Clone)]
pub struct TlsMetrics {
    pub listener: ListenerMetrics,
    missing: IntGauge,
    /// By outcome.
    challenges: IntCounterVec,
}

impl TlsMetrics {
    /// Creates and registers the metrics. Fails only if two have one name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let challenges = Opts::new("svc_node_acme_challenges_total", "Requests for HTTP-01 challenges, by outcome");
        let metrics = Self {
            listener: ListenerMetrics::new("svc_node_tls", registry)?,
            missing: IntGauge::new(
                "svc_node_tls_missing_certificates",
                "Certificates that the control plane lists and the node has not fetched",
            )?,
            challenges: IntCounterVec::new(challenges, &["outcome"])?,
        };
        registry.register(Box::new(metrics.missing.clone()))?;
        registry.register(Box::new(metrics.challenges.clone()))?;
        Ok(metrics)
    }

    pub fn count_challenge(&self, outcome: &str) {
        self.challenges.with_label_values(&[outcome]).inc();
    }

    pub fn set_missing(&self, count: usize) {
        self.missing.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
