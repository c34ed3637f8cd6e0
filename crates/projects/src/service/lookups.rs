//! The limit of ownership checks that requests of one organization run concurrently.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use kernel::OrgId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of concurrent checks of an organization. All organizations share the resolver.
const MAX_CHECKS_PER_ORG: usize = 4;

/// The longest wait for a permit.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(1);

/// The semaphores of organizations with checks in progress.
#[derive(Debug, Default)]
pub(super) struct LookupLimit(Mutex<HashMap<OrgId, Weak<Semaphore>>>);

impl LookupLimit {
    /// Waits for a permit for a check. Returns `None` if too many checks of the organization are in progress.
    pub(super) async fn acquire(&self, org: OrgId) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(ACQUIRE_TIMEOUT, self.of(org).acquire_owned()).await.ok()?.ok()
    }

    fn of(&self, org: OrgId) -> Arc<Semaphore> {
        let mut semaphores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = semaphores.get(&org).and_then(Weak::upgrade) {
            return semaphore;
        }
        semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(MAX_CHECKS_PER_ORG));
        semaphores.insert(org, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn checks_are_limited_by_organization() {
        let limit = LookupLimit::default();
        let [a, b] = [1, 2].map(|n| OrgId::from_uuid(uuid::Uuid::from_u128(n)));
        let mut permits = Vec::new();
        for _ in 0..MAX_CHECKS_PER_ORG {
            permits.push(limit.acquire(a).await.unwrap());
        }
        assert_eq!([a, b].map(|org| limit.of(org).available_permits()), [0, MAX_CHECKS_PER_ORG]);
        drop(permits);
        assert_eq!(limit.of(a).available_permits(), MAX_CHECKS_PER_ORG);
    }
}
