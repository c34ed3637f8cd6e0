//! Pauses of the clients, which a stop ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// The interval at which a pause checks for a stop.
const INTERVAL: Duration = Duration::from_millis(100);

/// Waits, and returns whether the workload continues.
pub async fn pause(duration: Duration, stopped: &AtomicBool) -> bool {
    let end = Instant::now() + duration;
    while !stopped.load(Ordering::SeqCst) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        sleep(left.min(INTERVAL)).await;
    }
    false
}
