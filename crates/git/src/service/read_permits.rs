//! The limits of concurrent reads of contents. Each read waits for the git node, and its contents then stay in memory
//! until the client has received them.

use std::sync::Arc;

use kernel::{KeyedSemaphores, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Result;
use crate::error::GitError;

/// The maximum number of concurrent reads. Each one can need 8 MiB.
const MAX_READS: usize = 32;
/// The maximum number of concurrent reads of a user.
const MAX_READS_PER_USER: usize = 8;

/// The permits for reads.
#[derive(Debug)]
pub(super) struct ReadPermits {
    all: Arc<Semaphore>,
    per_user: KeyedSemaphores<UserId>,
}

/// Contents of a repository.
#[derive(Debug)]
pub struct RepoRead<T> {
    pub contents: T,
    /// The caller holds it until the client has received the contents.
    pub permit: ReadPermit,
}

/// The permit of one read.
#[derive(Debug)]
pub struct ReadPermit {
    _all: OwnedSemaphorePermit,
    _per_user: OwnedSemaphorePermit,
}

impl Default for ReadPermits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_READS)), per_user: KeyedSemaphores::new(MAX_READS_PER_USER) }
    }
}

impl ReadPermits {
    /// Acquires the permit of a read that counts as this number of reads, without waiting.
    pub(super) fn acquire(&self, user: UserId, count: u32) -> Result<ReadPermit> {
        let per_user = self.per_user.of(user).try_acquire_many_owned(count);
        let per_user = per_user.map_err(|_| GitError::TooManyReads { limit: MAX_READS_PER_USER })?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(count).map_err(|_| GitError::ReadsAtCapacity)?;
        Ok(ReadPermit { _all: all, _per_user: per_user })
    }
}

#[cfg(test)]
mod tests {
    use kernel::ClockRng;

    use super::*;

    #[test]
    fn reads_are_limited_by_user_and_in_total() {
        let permits = ReadPermits::default();
        let rng = ClockRng::system();
        let [a, b, c, d, e]: [UserId; 5] = std::array::from_fn(|_| rng.id());
        let first = permits.acquire(a, 8).unwrap();
        let _others = [b, c, d].map(|user| permits.acquire(user, 8).unwrap());
        assert!(matches!(permits.acquire(a, 1), Err(GitError::TooManyReads { limit: 8 })));
        assert!(matches!(permits.acquire(e, 1), Err(GitError::ReadsAtCapacity)));
        drop(first);
        assert!(permits.acquire(e, 2).is_ok());
    }
}
