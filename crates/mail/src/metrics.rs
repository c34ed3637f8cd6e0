//! The metrics of mail.

use std::sync::LazyLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge};

static SUBMISSIONS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    counter("svc.mail.submissions", "Mails that workers submitted, by result: queued, or the code of the refusal")
});
static RECEIVED: LazyLock<Counter<u64>> = LazyLock::new(|| counter("svc.mail.received", "Mails received for projects"));
static DELIVERIES: LazyLock<Counter<u64>> = LazyLock::new(|| {
    counter(
        "svc.mail.deliveries",
        "Attempts to deliver mail to workers, by result: handled, rejected, no_handler or failed",
    )
});
static EVENTS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    counter(
        "svc.mail.events",
        "Events of the relay's service, by result: applied, repeated, early, unknown, malformed, not_authentic or \
         unavailable",
    )
});
static PENDING_DELIVERIES: LazyLock<Gauge<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_gauge("svc.mail.pending_deliveries")
        .with_description("Received mails that a worker must still handle")
        .build()
});

fn counter(name: &'static str, description: &'static str) -> Counter<u64> {
    opentelemetry::global::meter("svc").u64_counter(name).with_description(description).build()
}

pub(crate) fn submission(result: &'static str) {
    SUBMISSIONS.add(1, &[KeyValue::new("result", result)]);
}

pub(crate) fn received(mails: u64) {
    RECEIVED.add(mails, &[]);
}

pub(crate) fn delivery(result: &'static str) {
    DELIVERIES.add(1, &[KeyValue::new("result", result)]);
}

pub(crate) fn event(result: &'static str) {
    EVENTS.add(1, &[KeyValue::new("result", result)]);
}

pub(crate) fn pending_deliveries(count: i64) {
    PENDING_DELIVERIES.record(count.unsigned_abs(), &[]);
}
