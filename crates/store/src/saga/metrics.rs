//! Metrics of sagas.

use std::sync::LazyLock;

use kernel::Time;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram};

use super::SagaState;
use super::queue::Counts;

static RUNNING: LazyLock<Gauge<u64>> = LazyLock::new(|| gauge("svc.saga.running", "Unfinished sagas, by kind"));
static STUCK: LazyLock<Gauge<u64>> =
    LazyLock::new(|| gauge("svc.saga.stuck", "Sagas that are unfinished an hour after their start, by kind"));
static DURATION: LazyLock<Histogram<f64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .f64_histogram("svc.saga.duration")
        .with_unit("s")
        .with_description("Time from the start of a saga to its end, by kind and final state")
        .with_boundaries(vec![0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 600.0, 3600.0, 86400.0])
        .build()
});
static FAILURES: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.saga.failures")
        .with_description("Failed attempts and refusals of steps, by kind, step and outcome: retry or refused")
        .build()
});

fn gauge(name: &'static str, description: &'static str) -> Gauge<u64> {
    opentelemetry::global::meter("svc").u64_gauge(name).with_description(description).build()
}

pub(super) fn record_counts(kind: &'static str, counts: Counts) {
    let labels = [KeyValue::new("kind", kind)];
    RUNNING.record(counts.running.unsigned_abs(), &labels);
    STUCK.record(counts.stuck.unsigned_abs(), &labels);
}

#[expect(clippy::cast_precision_loss, reason = "the milliseconds of a saga fit into the 53 bits of a double")]
pub(super) fn record_end(kind: &'static str, state: SagaState, created_at: Time, now: Time) {
    let seconds = (now.unix_millis() - created_at.unix_millis()) as f64 / 1000.0;
    DURATION.record(seconds, &[KeyValue::new("kind", kind), KeyValue::new("state", state.as_str())]);
}

pub(super) fn count_failure(kind: &'static str, step: &'static str, outcome: &'static str) {
    let labels = [KeyValue::new("kind", kind), KeyValue::new("step", step), KeyValue::new("outcome", outcome)];
    FAILURES.add(1, &labels);
}
