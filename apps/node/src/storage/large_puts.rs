//! Permits for puts of large objects. Each such put buffers a part of its object.

use semaphores::KeyedSemaphores;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The largest number of owners whose projects may put their first large object at the same time.
const MAX_FIRST: usize = 32;
/// The largest number of further large objects that all projects together may put at the same time.
const MAX_FURTHER: usize = 32;
/// The largest number of large objects that the projects of one owner may put at the same time.
const MAX_PER_OWNER: usize = 8;

/// The permits of all projects. The first put of an owner does not wait for further puts of other owners, so a few
/// owners cannot delay all others.
pub struct LargePuts {
    first: Semaphore,
    further: Semaphore,
    owners: KeyedSemaphores<String>,
    /// One permit for each owner.
    owners_first: KeyedSemaphores<String>,
}

/// The permits of a put, until they are dropped.
pub struct LargePut<'a> {
    _owner: OwnedSemaphorePermit,
    _owner_first: Option<OwnedSemaphorePermit>,
    _shared: SemaphorePermit<'a>,
}

impl Default for LargePuts {
    fn default() -> Self {
        Self {
            first: Semaphore::new(MAX_FIRST),
            further: Semaphore::new(MAX_FURTHER),
            owners: KeyedSemaphores::new(MAX_PER_OWNER),
            owners_first: KeyedSemaphores::new(1),
        }
    }
}

impl LargePuts {
    /// Waits until a project of this owner may put another large object.
    ///
    /// # Errors
    /// Never returns an error, because the semaphores are not closed.
    pub async fn begin(&self, owner: &str) -> Result<LargePut<'_>, AcquireError> {
        // The permit of the owner is acquired first, so that the waiting puts of an owner do not block those of others.
        let permit = self.owners.of(owner.to_owned()).acquire_owned().await?;
        let first = self.owners_first.of(owner.to_owned()).try_acquire_owned().ok();
        let shared = if first.is_some() { &self.first } else { &self.further };
        Ok(LargePut { _owner: permit, _owner_first: first, _shared: shared.acquire().await? })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn first_put_of_an_owner_does_not_wait_for_many_of_others() {
        let puts = LargePuts::default();
        let begin = |owner: usize| puts.begin(&owner.to_string()).now_or_never();
        let begun: Vec<_> = (0..5).flat_map(|owner| (0..2 * MAX_PER_OWNER).filter_map(move |_| begin(owner))).collect();
        // Each of the five owners has its first put. Together, they also have all permits for further puts.
        assert_eq!(begun.len(), 5 + MAX_FURTHER);
        let firsts: Vec<_> = (5..5 + MAX_FIRST).filter_map(begin).collect();
        assert_eq!(firsts.len(), MAX_FIRST - 5);
        assert!(begin(5).is_none());
        drop(begun);
        assert!(begin(5).is_some());
    }
}
