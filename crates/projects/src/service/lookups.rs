//! The limit of ownership checks that requests of one organization run concurrently.

use std::time::Duration;

use kernel::{KeyedSemaphores, OrgId};
use tokio::sync::OwnedSemaphorePermit;

/// The maximum number of concurrent checks of an organization. All organizations share the resolver.
const MAX_CHECKS_PER_ORG: usize = 4;

/// The longest wait for a permit.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(1);

/// The permits of organizations with checks in progress.
#[derive(Debug)]
pub(super) struct LookupLimit(KeyedSemaphores<OrgId>);

impl LookupLimit {
    /// Waits for a permit for a check. Returns `None` if too many checks of the organization are in progress.
    pub(super) async fn acquire(&self, org: OrgId) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(ACQUIRE_TIMEOUT, self.0.of(org).acquire_owned()).await.ok()?.ok()
    }
}

impl Default for LookupLimit {
    fn default() -> Self {
        Self(KeyedSemaphores::new(MAX_CHECKS_PER_ORG))
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
        assert_eq!([a, b].map(|org| limit.0.of(org).available_permits()), [0, MAX_CHECKS_PER_ORG]);
        drop(permits);
        assert_eq!(limit.0.of(a).available_permits(), MAX_CHECKS_PER_ORG);
    }
}
