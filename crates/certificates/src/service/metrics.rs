//! Metrics of issuance.

use std::sync::LazyLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge};

static ORDERS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.certificates.orders")
        .with_description("Ended certificate orders, by result: issued or failed")
        .build()
});

static EXPIRING: LazyLock<Gauge<i64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .i64_gauge("svc.certificates.expiring")
        .with_description("Certificates in use that expire within seven days")
        .build()
});

/// Counts an order that ended.
pub(super) fn count_order(is_issued: bool) {
    ORDERS.add(1, &[KeyValue::new("result", if is_issued { "issued" } else { "failed" })]);
}

/// Records the number of certificates that expire soon.
pub(super) fn record_expiring(count: i64) {
    EXPIRING.record(count, &[]);
}
