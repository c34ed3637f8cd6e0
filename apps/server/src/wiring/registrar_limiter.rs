//! The rate limits of the account at the registrar, which all servers share, and a limit on concurrent calls.

use std::time::Duration;

use kernel::error_chain;
use store::{Quota, Store};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};

use crate::config::RegistrarLimits;

/// The longest wait for a permit. A request waits for at most ten seconds in all.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The concurrent calls of a process. A registrar that does not respond holds at most these.
const MAX_CONCURRENT_CALLS: usize = 16;

/// The callers, which have separate buckets, so that neither can take the permits of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// A request, for which a user waits: two thirds of each limit.
    Request,
    /// A background job: one third.
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
        // In a period, a bucket gives twice the permits that it holds.
        let (name, divisor) = match caller {
            Caller::Request => ("request", 3),
            Caller::Job => ("job", 6),
        };
        let quota = |unit: &str, limit: u32, seconds| {
            let permits = (limit / divisor).max(1);
            (format!("registrar-{name} {unit}"), Quota { permits, period: Duration::from_secs(seconds) })
        };
        // The second comes first: a call that gets no permit of it takes none of the hour.
        let quotas = [quota("second", limits.requests_per_second, 1), quota("hour", limits.requests_per_hour, 3600)];
        Self { store, quotas, calls: Semaphore::new(MAX_CONCURRENT_CALLS) }
    }

    /// Waits for a permit, for a second at most. The caller holds it during the call. `None` if none is free.
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
