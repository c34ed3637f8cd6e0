//! Permits that are divided among organizations, so that one organization cannot take all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kernel::OrgId;
use tokio::sync::Semaphore;

/// The same number of permits for each organization.
#[derive(Debug)]
pub(super) struct OrgPermits {
    max_per_org: usize,
    /// The semaphores of organizations that hold permits.
    semaphores: Mutex<HashMap<OrgId, Weak<Semaphore>>>,
}

impl OrgPermits {
    pub(super) fn new(max_per_org: usize) -> Self {
        Self { max_per_org, semaphores: Mutex::default() }
    }

    /// The permits of an organization.
    pub(super) fn of(&self, org: OrgId) -> Arc<Semaphore> {
        let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = semaphores.get(&org).and_then(Weak::upgrade) {
            return semaphore;
        }
        semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(self.max_per_org));
        semaphores.insert(org, Arc::downgrade(&semaphore));
        semaphore
    }
}
