//! Parts of a response whose value may be unreadable. One unreadable value must not keep the others from a node.

use std::io;
use std::sync::LazyLock;

use kernel::error_chain;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use protocol::{Change, UnavailablePart};

static UNAVAILABLE: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.desired.unavailable_parts")
        .with_description("Parts that a response to a node omits, because their values could not be read")
        .build()
});

/// Creates the counter of a part, because an alert needs the series before the first unreadable value.
pub(crate) fn create_counter(part: &'static str) {
    UNAVAILABLE.add(0, &[KeyValue::new("part", part)]);
}

/// A part of a response, and whether its value could be read.
pub(crate) struct ReadPart {
    pub(crate) change: Change,
    pub(crate) result: store::Result<()>,
}

impl From<Change> for ReadPart {
    fn from(change: Change) -> Self {
        Self { change, result: Ok(()) }
    }
}

impl ReadPart {
    /// Returns the size of the part in the response.
    pub(crate) fn json_bytes(&self) -> usize {
        let mut counter = ByteCounter(0);
        // Neither the counter nor a JSON value causes an error.
        let _ = serde_json::to_writer(&mut counter, &self.change);
        counter.0
    }
}

/// Counts the bytes that are written to it.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Separates the parts without a readable value, and reports them to the operator.
pub(crate) fn split(read: Vec<ReadPart>) -> (Vec<Change>, Vec<UnavailablePart>) {
    let (mut parts, mut unavailable) = (Vec::new(), Vec::new());
    for ReadPart { change, result } in read {
        let Err(error) = result else {
            parts.push(change);
            continue;
        };
        let Change { project, part, .. } = change;
        tracing::error!(project, part, error = %error_chain(&error), "failed to read a part of the desired state");
        UNAVAILABLE.add(1, &[KeyValue::new("part", part.clone())]);
        unavailable.push(UnavailablePart { project, part });
    }
    (parts, unavailable)
}
