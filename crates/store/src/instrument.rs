//! A span and a measurement for every statement. Statements are shown as prepared: without the values bound to them.

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
        .with_description("Statements sent to Postgres, those of transactions' BEGIN and COMMIT included")
        .with_boundaries(vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 3.0])
        .build()
});

/// Observes the statements of one lease.
#[derive(Default)]
pub(crate) struct Statements {
    running: Option<(Instant, tracing::Span)>,
    in_flight: InFlight,
}

/// Whether a statement was sent whose answer has not been read: still so when its future was dropped.
#[derive(Clone, Default)]
pub(crate) struct InFlight(Arc<AtomicBool>);

impl InFlight {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Statements {
    pub(crate) fn of(in_flight: InFlight) -> Self {
        Self { running: None, in_flight }
    }
}

impl Instrumentation for Statements {
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
                // Writing a statement out costs more than much of what is done with its answer.
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
                    DURATION.record(since.elapsed().as_secs_f64(), &[KeyValue::new("failed", failed)]);
                    if failed {
                        span.in_scope(|| tracing::debug!("the statement failed"));
                    }
                }
            }
            _ => {}
        }
    }
}
