//! The objects that the store failed to delete or to return.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::error_chain;
use tokio::time::Instant;

use super::error::BackupError;

/// The objects whose deletion or check failed, with the time of the failure. They are skipped for a while, so that they
/// do not prevent the work on other objects.
pub struct FailedObjects {
    retry_delay: Duration,
    failures: Mutex<HashMap<String, Instant>>,
}

impl FailedObjects {
    pub fn new(retry_delay: Duration) -> Self {
        Self { retry_delay, failures: Mutex::default() }
    }

    /// Logs and records a failure.
    pub fn record(&self, key: &str, error: BackupError) {
        tracing::warn!(key, error = error_chain(error), "failed to delete or to check a stored backup; trying again");
        self.lock().insert(key.to_owned(), Instant::now());
    }

    /// Returns the keys of the objects to skip.
    pub fn keys(&self) -> Vec<String> {
        let mut failures = self.lock();
        failures.retain(|_, failed_at| failed_at.elapsed() < self.retry_delay);
        failures.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
