//! A span and a duration metric for every statement. Spans contain the text of the statement, without the bound values.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use diesel::connection::{Instrumentation, InstrumentationEvent};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;

static DURATION: LazyLock<Histogram<f64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .f64_histogram("svc.db.statement.duration")
        .with_unit("s")
        .with_description("Duration of the statements sent to Postgres, including BEGIN and COMMIT")
        .with_boundaries(vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 3.0])
        .build()
});

/// Instruments the statements of one connection.
#[derive(Default)]
pub(crate) struct StatementInstrumentation {
    running: Option<(Instant, tracing::Span)>,
    in_flight: InFlight,
}

/// Whether a statement was sent and its response was not read. If the statement's future is dropped, this stays true.
#[derive(Clone, Default)]
pub(crate) struct InFlight(Arc<AtomicBool>);

impl InFlight {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl StatementInstrumentation {
    pub(crate) fn new(in_flight: InFlight) -> Self {
        Self { running: None, in_flight }
    }
}

impl Instrumentation for StatementInstrumentation {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { query, .. } => {
                self.in_flight.0.store(true, Ordering::Relaxed);
                let span = tracing::debug_span!(
                    "statement",
                    otel.kind = "client",
                    db.system = "postgresql",
                    db.statement = tracing::field::Empty
                );
                // Formatting a statement is expensive, so only enabled spans record it.
                if !span.is_disabled() {
                    let text = query.to_string();
                    let statement = text.split_once(" -- binds: ").map_or(text.as_str(), |(statement, _)| statement);
                    span.record("db.statement", statement);
                }
                self.running = Some((Instant::now(), span));
            }
            InstrumentationEvent::FinishQuery { error, .. } => {
                self.in_flight.0.store(false, Ordering::Relaxed);
                if let Some((since, span)) = self.running.take() {
                    let failed = error.is_some();
                    record_duration(since, failed);
                    if failed {
                        span.in_scope(|| tracing::debug!("statement failed"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Records the duration of a statement.
pub(crate) fn record_duration(since: Instant, failed: bool) {
    DURATION.record(since.elapsed().as_secs_f64(), &[KeyValue::new("failed", failed)]);
}
