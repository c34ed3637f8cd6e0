//! The limits of concurrent reads of contents. Each read waits for the git node.

use std::sync::Arc;

use kernel::{KeyedSemaphores, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Result;
use crate::error::GitError;

/// The maximum number of concurrent reads.
const MAX_READS: usize = 32;
/// The maximum number of concurrent reads of a user.
const MAX_READS_PER_USER: usize = 8;

/// The permits for reads.
#[derive(Debug)]
pub(super) struct ReadPermits {
    all: Arc<Semaphore>,
    per_user: KeyedSemaphores<UserId>,
}

/// The permit of one read.
#[derive(Debug)]
pub(super) struct ReadPermit {
    _all: OwnedSemaphorePermit,
    _per_user: OwnedSemaphorePermit,
}

impl Default for ReadPermits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_READS)), per_user: KeyedSemaphores::new(MAX_READS_PER_USER) }
    }
}

impl ReadPermits {
    /// Acquires the permit of a read, without waiting.
    pub(super) fn acquire(&self, user: UserId) -> Result<ReadPermit> {
        let per_user = self.per_user.of(user).try_acquire_owned();
        let per_user = per_user.map_err(|_| GitError::TooManyReads { limit: MAX_READS_PER_USER })?;
        let all = Arc::clone(&self.all).try_acquire_owned().map_err(|_| GitError::ReadsAtCapacity)?;
        Ok(ReadPermit { _all: all, _per_user: per_user })
    }
}
