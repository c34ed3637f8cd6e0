//! The metrics of app user auth.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry};
use protocol::AuthProviderKind;

use super::store::upkeep::Removed;

/// The outcome of a sign-in that failed because of its provider.
pub(super) const PROVIDER_FAILED: &str = "provider_failed";

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct AuthMetrics {
    /// By provider and outcome: `ok`, or the reason of the failure.
    sign_ins: IntCounterVec,
    /// By reason: `logout`, `ended` or `oldest`.
    removed_sessions: IntCounterVec,
    resolution: Histogram,
    failures: IntCounter,
}

impl AuthMetrics {
    /// Creates and registers the metrics. Fails only if two have one name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let sign_ins =
            Opts::new("svc_node_auth_sign_ins_total", "Completed flows of app sign-ins, by provider and outcome");
        let removed = Opts::new("svc_node_auth_sessions_removed_total", "Removed sessions of app users, by reason");
        let resolution = HistogramOpts::new(
            "svc_node_auth_resolve_seconds",
            "Time to find the user of a session, with the wait for a connection",
        );
        let resolution =
            resolution.buckets(vec![0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 3.0]);
        let metrics = Self {
            sign_ins: IntCounterVec::new(sign_ins, &["provider", "outcome"])?,
            removed_sessions: IntCounterVec::new(removed, &["reason"])?,
            resolution: Histogram::with_opts(resolution)?,
            failures: IntCounter::new(
                "svc_node_auth_failures_total",
                "Requests of visitors and calls of env.auth that failed because of the database of the project",
            )?,
        };
        // An alert needs these series before the first failure.
        for provider in AuthProviderKind::ALL {
            metrics.sign_ins.with_label_values(&[provider.as_str(), PROVIDER_FAILED]);
        }
        registry.register(Box::new(metrics.sign_ins.clone()))?;
        registry.register(Box::new(metrics.removed_sessions.clone()))?;
        registry.register(Box::new(metrics.resolution.clone()))?;
        registry.register(Box::new(metrics.failures.clone()))?;
        Ok(metrics)
    }

    pub(super) fn count_sign_in(&self, provider: AuthProviderKind, outcome: &str) {
        self.sign_ins.with_label_values(&[provider.as_str(), outcome]).inc();
    }

    pub(super) fn count_logout(&self) {
        self.removed_sessions.with_label_values(&["logout"]).inc();
    }

    pub(super) fn count_removed(&self, removed: Removed) {
        self.removed_sessions.with_label_values(&["ended"]).inc_by(removed.ended);
        self.removed_sessions.with_label_values(&["oldest"]).inc_by(removed.oldest);
    }

    pub(super) fn count_failure(&self) {
        self.failures.inc();
    }

    pub(super) fn observe_resolution(&self, time: Duration) {
        self.resolution.observe(time.as_secs_f64());
    }
}
