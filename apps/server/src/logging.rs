//! Log lines: JSON for machines, pretty on a terminal.

use std::io::{IsTerminal as _, stdout};

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::telemetry::Telemetry;

/// Writes log lines from here on, and hands spans to the collector where there is one.
pub fn start(filter: EnvFilter, telemetry: &Telemetry) {
    let lines = if stdout().is_terminal() { fmt::layer().pretty().boxed() } else { fmt::layer().json().boxed() };
    // A span per query is for traces; log lines keep to the filter.
    let traces = telemetry.tracer().map(|tracer| {
        let spans = EnvFilter::new("info,store=debug");
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(spans)
    });
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces).init();
}
