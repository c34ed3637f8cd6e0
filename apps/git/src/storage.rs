//! The storage of repositories: how many bytes a push may add, and how many bytes a repository uses.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use daemon::if_exists;
use futures_util::{StreamExt as _, stream};
use semaphores::KeyedSemaphores;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::core::Core;
use crate::repository::{Repositories, Repository};

/// The free space is checked again after a push has sent this many bytes.
const CHECK_BYTES: u64 = 16 << 20;
/// The size of a block of the file system, as far as the limit is concerned.
const BLOCK_BYTES: u64 = 4096;
/// The maximum number of repositories that are measured at the same time.
const MAX_MEASUREMENTS: usize = 4;
/// The age at which a report is repeated.
const REPORT_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// The interval at which failed reports are repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(600);

/// The reason why a push may not store its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StorageRefusal {
    #[error("the push is larger than the {0} bytes that the organization may still store in its repositories")]
    Organization(u64),
    #[error("the git node has too little free space; try again later")]
    Disk,
}

/// The limits of the storage of a push.
#[derive(Debug, Clone, Copy)]
pub struct PushLimits {
    /// The maximum size of the compressed objects that a client sends, in bytes.
    pub max_bytes: u64,
    /// Pushes are refused while the file system has fewer free bytes. Repacks leave them free.
    pub min_free_bytes: u64,
}

/// Checks what a running push stores.
pub struct PushStorage {
    repositories: Repositories,
    min_free_bytes: u64,
    /// The number of bytes that the organization may still store.
    max_bytes: u64,
    received: u64,
    /// The number of received bytes at which the free space is checked again.
    next_check: u64,
}

impl PushStorage {
    /// Begins a push.
    ///
    /// # Errors
    /// Returns [`StorageRefusal`], or an error of the file system.
    pub fn begin(repositories: Repositories, min_free_bytes: u64, max_bytes: u64) -> anyhow::Result<Self> {
        let mut storage = Self { repositories, min_free_bytes, max_bytes, received: 0, next_check: 0 };
        storage.check(0)?;
        Ok(storage)
    }

    /// Checks a push that has sent this many bytes.
    ///
    /// # Errors
    /// Returns [`StorageRefusal`], or an error of the file system.
    pub fn check(&mut self, received: u64) -> anyhow::Result<()> {
        self.received = received;
        if received > self.max_bytes {
            return Err(StorageRefusal::Organization(self.max_bytes).into());
        }
        if received >= self.next_check {
            self.next_check = received + CHECK_BYTES;
            if self.repositories.free_bytes()? < self.min_free_bytes {
                tracing::warn!("refused a push: SVC_GIT_DIR has less free space than SVC_GIT_MIN_FREE");
                return Err(StorageRefusal::Disk.into());
            }
        }
        Ok(())
    }

    /// Returns whether the push has sent anything. The request for the list of refs does not.
    pub const fn has_input(&self) -> bool {
        self.received > 0
    }
}

/// Reports the sizes of repositories to the control plane, which adds them up for each organization. Cheap to clone.
#[derive(Clone)]
pub struct SizeReporter {
    core: Core,
    /// One report of a repository runs at a time, so that an older size does not replace a newer one.
    running: Arc<KeyedSemaphores<String>>,
    /// One report runs and one waits. The waiting one will measure all changes until then, so it replaces further ones.
    queued: Arc<KeyedSemaphores<String>>,
    measurements: Arc<Semaphore>,
    /// The times of the last reports, if they succeeded.
    reported: Arc<Mutex<HashMap<String, Instant>>>,
}

impl SizeReporter {
    pub fn new(core: Core) -> Self {
        Self {
            core,
            running: Arc::new(KeyedSemaphores::new(1)),
            queued: Arc::new(KeyedSemaphores::new(2)),
            measurements: Arc::new(Semaphore::new(MAX_MEASUREMENTS)),
            reported: Arc::default(),
        }
    }

    /// Reports the size of a changed repository in the background. If a git process was killed, this first removes the
    /// files that it left behind.
    pub fn report_change(&self, id: String, repository: Repository, was_killed: bool) {
        let (this, path) = (self.clone(), repository.path.clone());
        tokio::spawn(async move {
            if was_killed {
                repository.clean_up().await;
            } else {
                drop(repository);
            }
            this.report(&id, path).await;
        });
    }

    /// Measures a repository, and reports its size. If this fails, [`Self::repeat`] reports it again.
    async fn report(&self, id: &str, path: PathBuf) {
        let Ok(queued) = self.queued.of(id.to_owned()).try_acquire_owned() else { return };
        let report = async {
            // The first permit is released first: while the next report runs, another one can wait.
            let _permits = (queued, self.running.of(id.to_owned()).acquire_owned().await?);
            let size_bytes = {
                let _permit = self.measurements.acquire().await?;
                let measured = path.clone();
                spawn_blocking(move || measure(&measured)).await??
            };
            self.core.report_size(id, size_bytes).await
        };
        match report.await {
            // The repository was erased after the report began.
            Ok(false) if !path.is_dir() => self.forget(id),
            Ok(exists) => {
                if !exists {
                    tracing::warn!(repository = id, "the control plane does not have a repository of this node");
                }
                self.reported().insert(id.to_owned(), Instant::now());
            }
            Err(error) => {
                self.reported().remove(id);
                let error = format!("{error:#}");
                tracing::warn!(error, repository = id, "failed to report the size of a repository");
            }
        }
    }

    /// Repeats the reports that failed or are old, at an interval. At the limit of an organization, no push can do this,
    /// because pushes are refused. Runs until it is aborted.
    pub async fn repeat(self, repositories: Repositories) {
        let mut ticks = interval(RETRY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let repeat = async |id: String| {
                let last = self.reported().get(&id).copied();
                if last.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL)
                    && let Ok(path) = repositories.path(&id)
                {
                    self.report(&id, path).await;
                }
            };
            stream::iter(repositories.all()).for_each_concurrent(MAX_MEASUREMENTS, repeat).await;
        }
    }

    /// Removes the time of the last report of an erased repository.
    pub fn forget(&self, id: &str) {
        self.reported().remove(id);
    }

    fn reported(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the size of a directory. Each file counts as whole blocks, so that many small files, such as refs, count
/// too.
pub fn measure(directory: &Path) -> io::Result<u64> {
    let (mut bytes, mut directories) = (0, vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        // git can remove files and directories at any time.
        for entry in if_exists(fs::read_dir(&directory))?.into_iter().flatten() {
            let entry = entry?;
            let Some(metadata) = if_exists(entry.metadata())? else { continue };
            bytes += metadata.len().next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_as_whole_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let refs = folder.path().join("refs");
        assert_eq!(measure(&refs).unwrap(), 0);
        fs::create_dir(&refs).unwrap();
        fs::write(refs.join("main"), [0; 41]).unwrap();
        fs::write(folder.path().join("pack"), vec![0; 10_000]).unwrap();
        // A directory counts like a file, with a size that depends on the file system.
        let directory = fs::metadata(&refs).unwrap().len().next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        assert_eq!(measure(folder.path()).unwrap(), directory + BLOCK_BYTES + 3 * BLOCK_BYTES);
    }

    #[test]
    fn pushes_are_refused_above_the_limits() {
        let (_folder, repositories) = Repositories::temporary();
        let begin = |min_free| PushStorage::begin(repositories.clone(), min_free, 1000);
        let mut storage = begin(0).unwrap();
        storage.check(1000).unwrap();
        let refused = storage.check(1001).unwrap_err();
        assert_eq!(refused.downcast_ref(), Some(&StorageRefusal::Organization(1000)));
        let refused = begin(u64::MAX).err().unwrap();
        assert_eq!(refused.downcast_ref(), Some(&StorageRefusal::Disk));
    }
}
