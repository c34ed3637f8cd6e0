//! Bounded waits.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::error::{Result, StorageError};

/// The longest total time that an operation waits for the store and the index while its stream makes no progress.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(20);
/// How far, in time, worker code may fall behind [`MIN_RATE`] in a stream. Also the longest wait for the next data of
/// the stream.
const SENDER_GRACE: Duration = Duration::from_secs(30);
/// The minimum rate of a stream that worker code sends, in bytes per second.
const MIN_RATE: u32 = 16 * 1024;

/// The remaining time that an operation may wait for the store or for the sender.
pub struct WaitBudget {
    left: Duration,
    max: Duration,
    error: StorageError,
}

impl WaitBudget {
    /// Returns the budget for waiting for the store. Waiting for the caller does not use it up.
    pub const fn new() -> Self {
        Self { left: STORE_TIMEOUT, max: STORE_TIMEOUT, error: StorageError::TIMED_OUT }
    }

    /// Returns the budget for waiting for the sender of a stream. Waiting for the store does not use it up.
    pub const fn for_sender() -> Self {
        Self { left: SENDER_GRACE, max: SENDER_GRACE, error: StorageError::INPUT_TOO_SLOW }
    }

    /// Waits for a result.
    ///
    /// # Errors
    /// Returns [`StorageError::TIMED_OUT`] or [`StorageError::INPUT_TOO_SLOW`] if the budget is used up.
    pub async fn wait<T>(&mut self, operation: impl Future<Output = T>) -> Result<T> {
        let began = Instant::now();
        let result = timeout(self.left, operation).await.map_err(|_| self.error)?;
        self.left = self.left.saturating_sub(began.elapsed());
        Ok(result)
    }

    /// Restores the budget, because the store accepted or delivered data.
    pub const fn progress(&mut self) {
        self.left = self.max;
    }

    /// Adds the time that a sender may take for this number of bytes.
    pub fn receive(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.left = (self.left + Duration::from_secs(1) * bytes / MIN_RATE).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sender_must_keep_the_minimum_rate() {
        let mut budget = WaitBudget { left: Duration::ZERO, ..WaitBudget::for_sender() };
        let pending = budget.wait(std::future::pending::<()>()).await;
        assert_eq!(pending, Err(StorageError::INPUT_TOO_SLOW));
        for (bytes, left) in [(8 << 10, 500), (24 << 10, 2000), (1 << 20, 30_000), (usize::MAX, 30_000)] {
            budget.receive(bytes);
            assert_eq!(budget.left, Duration::from_millis(left), "{bytes}");
        }
        assert_eq!(budget.wait(async {}).await, Ok(()));
    }
}
