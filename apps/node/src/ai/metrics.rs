//! The metrics of `env.ai`.

use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};
use protocol::AiUsage;

use super::error::AiError;

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct AiMetrics {
    /// By outcome: `ok`, or that of the error.
    calls: IntCounterVec,
    /// By direction (`input` or `output`) and origin (`reported` or `estimated`).
    tokens: IntCounterVec,
    /// How long the control plane takes to admit a call, in seconds.
    pub admission: Histogram,
    /// The calls that were sent and have not ended.
    pub open: IntGauge,
    /// The calls that ended and that the control plane has not accepted.
    pub unsettled: IntGauge,
}

impl AiMetrics {
    /// Creates and registers the metrics. Fails only if two have one name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let calls = Opts::new("svc_node_ai_calls_total", "Calls of env.ai, by outcome");
        let tokens =
            Opts::new("svc_node_ai_tokens_total", "Tokens of AI models, by direction and origin of the number");
        let admission =
            HistogramOpts::new("svc_node_ai_admission_seconds", "Time until the control plane admits an AI call");
        let metrics = Self {
            calls: IntCounterVec::new(calls, &["outcome"])?,
            tokens: IntCounterVec::new(tokens, &["direction", "origin"])?,
            admission: Histogram::with_opts(admission)?,
            open: IntGauge::new("svc_node_ai_open_calls", "Calls of AI models in progress")?,
            unsettled: IntGauge::new(
                "svc_node_ai_unsettled_calls",
                "Calls of AI models that ended and that the control plane has not accepted",
            )?,
        };
        // Alerts need these series before the first failure.
        metrics.calls.with_label_values(&[AiError::NoUpstream.outcome()]);
        metrics.calls.with_label_values(&[AiError::TimedOut.outcome()]);
        registry.register(Box::new(metrics.calls.clone()))?;
        registry.register(Box::new(metrics.tokens.clone()))?;
        registry.register(Box::new(metrics.admission.clone()))?;
        registry.register(Box::new(metrics.open.clone()))?;
        registry.register(Box::new(metrics.unsettled.clone()))?;
        Ok(metrics)
    }

    /// Counts a call.
    pub fn count(&self, outcome: &'static str) {
        self.calls.with_label_values(&[outcome]).inc();
    }

    pub fn add_usage(&self, usage: AiUsage) {
        let origin = if usage.estimated { "estimated" } else { "reported" };
        self.tokens.with_label_values(&["input", origin]).inc_by(usage.input_tokens.into());
        self.tokens.with_label_values(&["output", origin]).inc_by(usage.output_tokens.into());
    }
}
