//! Bounded waits.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::error::{Result, StorageError};

/// The longest total wait of an operation for the store and the index, without progress of its stream.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait for the next data of a stream that worker code sends.
pub const INPUT_TIMEOUT: Duration = Duration::from_secs(25);

/// The remaining time that an operation may wait for the store. Time in which it waits for its caller does not count.
pub struct WaitBudget(Duration);

impl WaitBudget {
    pub const fn new() -> Self {
        Self(STORE_TIMEOUT)
    }

    /// Waits for a result.
    ///
    /// # Errors
    /// [`StorageError::TIMED_OUT`] when the budget is spent.
    pub async fn wait<T>(&mut self, operation: impl Future<Output = T>) -> Result<T> {
        let began = Instant::now();
        let result = timeout(self.0, operation).await.map_err(|_| StorageError::TIMED_OUT)?;
        self.0 = self.0.saturating_sub(began.elapsed());
        Ok(result)
    }

    /// Restores the budget, because the store accepted or delivered data.
    pub const fn progress(&mut self) {
        self.0 = STORE_TIMEOUT;
    }
}
