//! Kinds of uploads, with their limits and metrics.

use std::sync::LazyLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;

static REJECTED: LazyLock<Counter<u64>> = LazyLock::new(|| {
    let meter = opentelemetry::global::meter("svc");
    meter.u64_counter("svc.uploads.rejected").with_description("Rejected uploads").build()
});

/// A kind of upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadKind {
    /// A bundle: a stream. It occupies a thread while it is read.
    Bundle,
    /// A zone file, which is held in memory as a whole.
    ZoneFile,
}

impl UploadKind {
    /// The limit of concurrent uploads of all callers.
    pub(super) const fn max_total(self) -> usize {
        match self {
            Self::Bundle => 32,
            Self::ZoneFile => 8,
        }
    }

    /// The limit of concurrent uploads of an organization, and of a user.
    pub(super) const fn max_per_tenant(self) -> usize {
        match self {
            Self::Bundle => 4,
            Self::ZoneFile => 2,
        }
    }

    /// The kind as a metric label.
    pub(super) fn label(self) -> KeyValue {
        let kind = match self {
            Self::Bundle => "bundle",
            Self::ZoneFile => "zone_file",
        };
        KeyValue::new("kind", kind)
    }

    /// Counts a rejected upload: `organization`, `user` or `capacity` for the limit that it exceeded, or `slow`.
    pub(super) fn count_rejection(self, reason: &'static str) {
        REJECTED.add(1, &[self.label(), KeyValue::new("reason", reason)]);
    }
}
