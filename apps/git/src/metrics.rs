//! The metrics of the git node.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry};

/// How a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Http,
    Ssh,
}

impl Transport {
    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Ssh => "ssh",
        }
    }
}

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    accesses: IntCounterVec,
    push_decisions: IntCounterVec,
    exchanges: HistogramVec,
    delivered: IntCounter,
    deploys: IntCounterVec,
    browses: HistogramVec,
    registry: Registry,
}

impl Metrics {
    /// Creates the metrics. Fails only if two metrics have the same name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let accesses = Opts::new("svc_git_accesses_total", "Requests of git clients, by the decision about them");
        let accesses = IntCounterVec::new(accesses, &["transport", "decision"])?;
        let push_decisions =
            Opts::new("svc_git_push_decisions_total", "Decisions about pushes before they change refs");
        let push_decisions = IntCounterVec::new(push_decisions, &["decision"])?;
        let buckets = prometheus::exponential_buckets(0.01, 3.0, 12)?;
        let exchanges = HistogramOpts::new("svc_git_exchange_seconds", "Duration of programs of git, by their outcome");
        let exchanges = HistogramVec::new(exchanges.buckets(buckets.clone()), &["transport", "program", "outcome"])?;
        let delivered =
            IntCounter::new("svc_git_ref_updates_total", "Updates of refs that the control plane received")?;
        let deploys = Opts::new("svc_git_deploys_total", "Deploys of pushes, by outcome; failed ones are repeated");
        let deploys = IntCounterVec::new(deploys, &["outcome"])?;
        let browses = HistogramOpts::new("svc_git_browse_seconds", "Duration of browse requests, by operation");
        let browses = HistogramVec::new(browses.buckets(buckets), &["operation"])?;
        let registry = Registry::new();
        registry.register(Box::new(accesses.clone()))?;
        registry.register(Box::new(push_decisions.clone()))?;
        registry.register(Box::new(exchanges.clone()))?;
        registry.register(Box::new(delivered.clone()))?;
        registry.register(Box::new(deploys.clone()))?;
        registry.register(Box::new(browses.clone()))?;
        Ok(Self { accesses, push_decisions, exchanges, delivered, deploys, browses, registry })
    }

    /// Counts a decision about an access.
    pub fn access(&self, transport: Transport, decision: &str) {
        self.accesses.with_label_values(&[transport.name(), decision]).inc();
    }

    /// Counts a decision about a push that is about to change refs.
    pub fn push_decision(&self, decision: &str) {
        self.push_decisions.with_label_values(&[decision]).inc();
    }

    /// Records the duration and the outcome of a git process.
    pub fn exchange(&self, transport: Transport, program: &str, outcome: &str, duration: Duration) {
        let labels = [transport.name(), program, outcome];
        self.exchanges.with_label_values(&labels).observe(duration.as_secs_f64());
    }

    /// Counts delivered updates of refs.
    pub fn delivered(&self, updates: usize) {
        self.delivered.inc_by(u64::try_from(updates).unwrap_or(u64::MAX));
    }

    /// Counts ended deploys of pushes, or failed attempts.
    pub fn deploy(&self, outcome: &str, deploys: u64) {
        self.deploys.with_label_values(&[outcome]).inc_by(deploys);
    }

    /// Records a browse request.
    pub fn browse(&self, operation: &str, duration: Duration) {
        self.browses.with_label_values(&[operation]).observe(duration.as_secs_f64());
    }

    /// Returns the registry of the metrics.
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }
}
