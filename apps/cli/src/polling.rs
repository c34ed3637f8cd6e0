//! Waiting until the API reports a state.

use std::time::{Duration, Instant};

use client::{Error, Response};

use crate::error::CliError;

/// The first poll interval. The interval doubles up to [`MAX_POLL_INTERVAL`].
pub const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum poll interval.
pub const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the API may fail while `svc` waits.
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Polls a resource until it is in a final state. Returns that state.
pub async fn poll_until<T>(
    get: impl AsyncFn() -> Result<Response<T>, Error>,
    mut is_final: impl FnMut(&T) -> bool,
) -> Result<Response<T>, CliError> {
    let (mut interval, mut last_success) = (FIRST_POLL_INTERVAL, Instant::now());
    loop {
        let pause = match get().await {
            Ok(state) if is_final(&state) => return Ok(state),
            Ok(_) => {
                last_success = Instant::now();
                Duration::ZERO
            }
            Err(error) if is_transient(&error) && last_success.elapsed() < UNAVAILABLE_TIMEOUT => {
                error.retry_after().unwrap_or_default()
            }
            Err(error) => return Err(error.into()),
        };
        tokio::time::sleep(pause.max(interval)).await;
        interval = (interval * 2).min(MAX_POLL_INTERVAL);
    }
}

/// Returns whether a later request may succeed.
pub fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Unreachable(_)) || matches!(error.status(), Some(429 | 500..))
}
