//! The rate limits of the account at the registrar, which all servers share, and a limit on concurrent calls.

use std::time::Duration;

use kernel::error_chain;
use store::{Quota, Store};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};

use crate::config::RegistrarLimits;

/// The longest wait for a permit, so that a request has time left for its calls: it may take ten seconds in total.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The limit on concurrent calls per process and caller. A registrar that does not respond blocks at most this many
/// tasks.
const MAX_CONCURRENT_CALLS: usize = 16;

/// The two kinds of callers. Each has separate buckets, so it cannot take the permits of the other kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// A call of a user's request, which gets two thirds of each limit.
    Request,
    /// A call of a background job, which gets one third of each limit.
    Job,
}

/// The limiter of one kind of caller.
pub(super) struct RegistrarLimiter {
    store: Store,
    quotas: [(String, Quota); 2],
    calls: Semaphore,
}

impl RegistrarLimiter {
    pub(super) fn new(store: Store, limits: RegistrarLimits, caller: Caller) -> Self {
        // A bucket grants up to twice its size in a period, so its size is half of the caller's part of the limit.
        let (name, divisor) = match caller {
            Caller::Request => ("request", 3),
            Caller::Job => ("job", 6),
        };
        let quota = |unit: &str, limit: u32, seconds| {
            let permits = (limit / divisor).max(1);
            (format!("registrar-{name} {unit}"), Quota { permits, period: Duration::from_secs(seconds) })
        };
        // The bucket of the seconds comes first: a call that gets no permit from it must not use up a permit of the
        // hour.
        let quotas = [quota("second", limits.requests_per_second, 1), quota("hour", limits.requests_per_hour, 3600)];
        Self { store, quotas, calls: Semaphore::new(MAX_CONCURRENT_CALLS) }
    }

    /// Waits for a permit for up to a second. Returns `None` if none is free by then. The caller holds the permit
    /// during the call.
    pub(super) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        let acquired = async {
            let permit = self.calls.acquire().await.ok()?;
            for (key, quota) in &self.quotas {
                self.take(key, *quota).await?;
            }
            Some(permit)
        };
        timeout(MAX_WAIT, acquired).await.ok().flatten()
    }

    async fn take(&self, key: &str, quota: Quota) -> Option<()> {
        loop {
            match self.store.permits_take(key, quota, 1).await {
                Ok(None) => return Some(()),
                Ok(Some(wait)) if wait <= MAX_WAIT => sleep(wait).await,
                Ok(Some(_)) => return None,
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "failed to count a request to the registrar");
                    return None;
                }
            }
        }
    }
}
