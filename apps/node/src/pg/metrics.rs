//! The metrics of `env.db`.

use prometheus::{IntCounterVec, Opts, Registry};

use super::call::Mode;
use super::error::{DatabaseError, Result};

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct CallMetrics {
    /// Calls by method and outcome. The outcome is `ok`, `error` for errors of Postgres, or the code of another error.
    calls: IntCounterVec,
}

impl CallMetrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    /// Returns an error only if two metrics have the same name.
    pub fn new(registry: &Registry) -> std::result::Result<Self, prometheus::Error> {
        let calls = Opts::new("svc_node_database_calls_total", "Calls of env.db, by method and outcome");
        let metrics = Self { calls: IntCounterVec::new(calls, &["method", "outcome"])? };
        registry.register(Box::new(metrics.calls.clone()))?;
        Ok(metrics)
    }

    /// Counts a call.
    pub fn count(&self, mode: Mode, result: &Result<()>) {
        let method = match mode {
            Mode::Query => "query",
            Mode::Batch => "batch",
        };
        let outcome = match result {
            Ok(()) => "ok",
            // The SQLSTATE is not a label, because the number of values is not bounded.
            Err(DatabaseError::Statement { .. }) => "error",
            Err(error) => error.code(),
        };
        self.calls.with_label_values(&[method, outcome]).inc();
    }
}
