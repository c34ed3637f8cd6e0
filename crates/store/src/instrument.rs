//! A span and a measurement for every statement. Statements are shown as prepared: without the values bound to them.

use std::sync::LazyLock;
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

#[derive(Default)]
pub(crate) struct Statements {
    running: Option<(Instant, tracing::Span)>,
}

impl Instrumentation for Statements {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { query, .. } => {
                let text = query.to_string();
                let statement = text.split_once(" -- binds: ").map_or(text.as_str(), |(statement, _)| statement);
                let span = tracing::debug_span!(
                    "statement",
                    otel.kind = "client",
                    db.system = "postgresql",
                    db.statement = statement
                );
                self.running = Some((Instant::now(), span));
            }
            InstrumentationEvent::FinishQuery { error, .. } => {
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
