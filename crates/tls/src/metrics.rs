//! The metrics of a listener.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// The metrics. Clones share their values.
#[derive(Debug, Clone)]
pub struct ListenerMetrics {
    /// By outcome.
    handshakes: IntCounterVec,
    /// By source: `files` or `issued`.
    certificates: IntGaugeVec,
    /// By source.
    earliest_expiry: IntGaugeVec,
}

impl ListenerMetrics {
    /// Creates and registers the metrics, whose names begin with `prefix`.
    ///
    /// # Errors
    /// Returns an error if the registry has metrics with these names.
    pub fn new(prefix: &str, registry: &Registry) -> Result<Self, prometheus::Error> {
        let name = |name: &str| format!("{prefix}_{name}");
        let handshakes = Opts::new(name("handshakes_total"), "TLS handshakes, by outcome");
        let certificates = Opts::new(name("certificates"), "Certificates that the listener presents, by source");
        let earliest_expiry = Opts::new(
            name("earliest_expiry_timestamp_seconds"),
            "Unix time at which the first certificate of a source expires",
        );
        let metrics = Self {
            handshakes: IntCounterVec::new(handshakes, &["outcome"])?,
            certificates: IntGaugeVec::new(certificates, &["source"])?,
            earliest_expiry: IntGaugeVec::new(earliest_expiry, &["source"])?,
        };
        registry.register(Box::new(metrics.handshakes.clone()))?;
        registry.register(Box::new(metrics.certificates.clone()))?;
        registry.register(Box::new(metrics.earliest_expiry.clone()))?;
        Ok(metrics)
    }

    pub(crate) fn count_handshake(&self, outcome: &str) {
        self.handshakes.with_label_values(&[outcome]).inc();
    }

    /// Records how many certificates of a source there are, and when the first of them expires.
    pub(crate) fn set_held(&self, source: &str, count: usize, earliest_expiry: Option<i64>) {
        self.certificates.with_label_values(&[source]).set(i64::try_from(count).unwrap_or(i64::MAX));
        match earliest_expiry {
            Some(at) => self.earliest_expiry.with_label_values(&[source]).set(at),
            // Fails if the source had no certificate before.
            None => drop(self.earliest_expiry.remove_label_values(&[source])),
        }
    }
}
