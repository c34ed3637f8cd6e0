//! The metrics of the object storage.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::error::StorageError;

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct StorageMetrics {
    /// By operation and outcome: `ok` or the code of the error.
    operations: IntCounterVec,
    /// By direction: `in` or `out`.
    bytes: IntCounterVec,
    pub orphans: IntCounter,
}

/// The direction of bytes, as worker code sees it: `in` is a put.
#[derive(Clone, Copy)]
pub enum Direction {
    In,
    Out,
}

impl StorageMetrics {
    /// Creates and registers the metrics. Fails only if two have one name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let operations =
            Opts::new("svc_node_storage_operations_total", "Calls of env.storage, by operation and outcome");
        let bytes = Opts::new("svc_node_storage_bytes_total", "Content of objects that workers put and get, in bytes");
        let metrics = Self {
            operations: IntCounterVec::new(operations, &["operation", "outcome"])?,
            bytes: IntCounterVec::new(bytes, &["direction"])?,
            orphans: IntCounter::new(
                "svc_node_storage_orphans_removed_total",
                "Blobs of interrupted puts that were found after a start and removed",
            )?,
        };
        // An alert needs these series before the first failure.
        for operation in ["put", "get", "head", "delete", "list"] {
            metrics.operations.with_label_values(&[operation, StorageError::FAILED.code()]);
        }
        registry.register(Box::new(metrics.operations.clone()))?;
        registry.register(Box::new(metrics.bytes.clone()))?;
        registry.register(Box::new(metrics.orphans.clone()))?;
        Ok(metrics)
    }

    pub fn count<T>(&self, operation: &str, result: &Result<T, StorageError>) {
        let outcome = result.as_ref().err().map_or("ok", StorageError::code);
        self.operations.with_label_values(&[operation, outcome]).inc();
    }

    pub fn add_bytes(&self, direction: Direction, count: usize) {
        let direction = match direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        self.bytes.with_label_values(&[direction]).inc_by(count as u64);
    }
}
