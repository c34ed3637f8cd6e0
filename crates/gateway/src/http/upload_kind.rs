//! Kinds of uploads, with their limits and metrics.

use std::sync::LazyLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;

static REJECTED: LazyLock<Counter<u64>> = LazyLock::new(|| {
    let meter = opentelemetry::global::meter("svc");
    meter.u64_counter("svc.uploads.rejected").with_description("Rejected uploads").build()
});

/// The reason of a rejection above the limit of all callers, as a metric label.
pub(super) const CAPACITY: &str = "capacity";

/// A kind of upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadKind {
    /// A bundle, which is streamed. It occupies a thread while it is read.
    Bundle,
    /// A zone file, which is kept in memory as a whole.
    ZoneFile,
    /// A received mail, which is streamed.
    Message,
}

impl UploadKind {
    const ALL: [Self; 3] = [Self::Bundle, Self::ZoneFile, Self::Message];

    /// Returns the maximum number of concurrent uploads of all callers.
    pub(super) const fn max_total(self) -> usize {
        match self {
            Self::Bundle => 32,
            Self::ZoneFile => 8,
            Self::Message => 64,
        }
    }

    /// Returns the maximum number of concurrent uploads of an organization, which is also that of a user.
    pub(super) const fn max_per_tenant(self) -> usize {
        match self {
            Self::Bundle => 4,
            Self::ZoneFile => 2,
            // The mail node belongs to no tenant.
            Self::Message => 64,
        }
    }

    /// Returns the kind as a metric label.
    pub(super) fn label(self) -> KeyValue {
        let kind = match self {
            Self::Bundle => "bundle",
            Self::ZoneFile => "zone_file",
            Self::Message => "message",
        };
        KeyValue::new("kind", kind)
    }

    /// Creates the counters of which an alert needs the series before the first rejection.
    pub(super) fn create_counters() {
        for kind in Self::ALL {
            kind.add_rejections(0, CAPACITY);
        }
    }

    /// Counts a rejected upload. `reason` is the exceeded limit (`organization`, `user` or `capacity`), or `slow`.
    pub(super) fn count_rejection(self, reason: &'static str) {
        self.add_rejections(1, reason);
    }

    fn add_rejections(self, count: u64, reason: &'static str) {
        REJECTED.add(count, &[self.label(), KeyValue::new("reason", reason)]);
    }
}
