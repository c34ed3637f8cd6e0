//! Log output: JSON, or a human-readable format on a terminal.

use std::io::{IsTerminal as _, stdout};

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::telemetry::Telemetry;

/// Installs the global subscriber for log lines and, if a collector is configured, for traces.
pub fn start(filter: EnvFilter, telemetry: &Telemetry) {
    let lines = if stdout().is_terminal() { fmt::layer().pretty().boxed() } else { fmt::layer().json().boxed() };
    // Traces include a span for each SQL statement, whatever the log filter.
    let traces = telemetry.tracer().map(|tracer| {
        let spans = EnvFilter::new("info,store=debug");
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(spans)
    });
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces).init();
}
