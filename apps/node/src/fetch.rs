//! Download of bundles into the cache.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use daemon::Backoff;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::cache::{Cache, TemporaryFile};
use crate::client::Core;
use crate::digest::{Digest, Digester};
use crate::index::Index;
use crate::unpack::unpack;

/// The largest number of bundles that are downloaded or unpacked at the same time.
const MAX_CONCURRENT_DOWNLOADS: usize = 4;
/// The longest delay before a bundle is fetched again. A permanently bad bundle is fetched at this interval.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// A bundle is reported as failed after this many attempts, about three seconds.
const REPORTED_ATTEMPTS: u64 = 6;

/// Provides bundles from the cache, and downloads missing and damaged ones from the control plane.
#[derive(Clone)]
pub struct Fetcher {
    pub cache: Arc<Cache>,
    core: Core,
    download_permits: Arc<Semaphore>,
    failed_fetches: UnboundedSender<Digest>,
}

impl Fetcher {
    /// Creates a fetcher that downloads from `core` into `cache`. The channel receives each bundle that repeatedly
    /// failed to fetch, once per call of [`Self::fetch`].
    pub fn new(core: Core, cache: Arc<Cache>) -> (Self, UnboundedReceiver<Digest>) {
        let (failed_fetches, failed) = unbounded_channel();
        (
            Self { cache, core, download_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_DOWNLOADS)), failed_fetches },
            failed,
        )
    }

    /// Returns the index of a bundle of `size` bytes. Downloads a damaged bundle even if it is stored. Retries until it
    /// succeeds.
    pub async fn fetch(self, bundle: Digest, size: i64, is_damaged: bool) -> (Digest, Index) {
        let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
        let mut attempts = 0_u64;
        loop {
            match self.attempt(bundle, size, is_damaged).await {
                Ok(index) => return (bundle, index),
                Err(error) => {
                    if is_disk_full(&error) {
                        self.make_space().await;
                    }
                    let error = format!("{error:#}");
                    tracing::warn!(%bundle, error, "failed to fetch a bundle; retrying");
                }
            }
            attempts += 1;
            if attempts == REPORTED_ATTEMPTS {
                // The receiver lives as long as this task.
                let _ = self.failed_fetches.send(bundle);
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Evicts bundles because the disk is full. If an addition is in progress, the eviction stays requested.
    async fn make_space(&self) {
        let cache = Arc::clone(&self.cache);
        cache.request_space();
        if let Err(error) = spawn_blocking(move || cache.evict()).await.map_err(Into::into).flatten() {
            tracing::error!(%error, "failed to evict bundles from a full disk");
            self.cache.request_space();
        }
    }

    async fn attempt(&self, bundle: Digest, size: i64, is_damaged: bool) -> anyhow::Result<Index> {
        let cache = Arc::clone(&self.cache);
        let find_stored = move || {
            // An eviction in progress may have started before the bundle was pinned.
            let _guard = cache.block_eviction();
            cache.index(bundle)
        };
        if !is_damaged && let Some(index) = spawn_blocking(find_stored).await?? {
            return Ok(index);
        }
        let permit = Arc::clone(&self.download_permits).acquire_owned().await?;
        let archive = self.download(bundle, size).await?;
        self.store(bundle, archive, is_damaged, permit).await
    }

    /// Unpacks a verified archive. This continues, and holds the permit, if the caller is cancelled.
    async fn store(
        &self,
        bundle: Digest,
        archive: TemporaryFile,
        is_damaged: bool,
        permit: OwnedSemaphorePermit,
    ) -> anyhow::Result<Index> {
        let cache = Arc::clone(&self.cache);
        let unpack = move || {
            let _permit = permit;
            if is_damaged {
                cache.remove_damaged_blobs(bundle)?;
            }
            let unpacked = unpack(&cache, bundle, &archive.file);
            if unpacked.is_err() {
                // After a failure, the blobs that were already stored belong to no bundle.
                if let Err(error) = cache.evict() {
                    tracing::error!(%error, "failed to remove the blobs of an incomplete bundle");
                    cache.request_eviction();
                }
            }
            unpacked
        };
        spawn_blocking(unpack).await?
    }

    /// Downloads and verifies the archive.
    async fn download(&self, bundle: Digest, size: i64) -> anyhow::Result<TemporaryFile> {
        let mut response = self.core.bundle(bundle).await?;
        let archive = self.cache.temporary()?;
        let mut file = tokio::fs::File::from_std(archive.file.try_clone()?);
        let mut digester = Digester::default();
        let mut remaining = u64::try_from(size)?;
        while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
            let length = chunk.len() as u64;
            ensure!(length <= remaining, "received more than {size} bytes");
            remaining -= length;
            digester.update(&chunk);
            file.write_all(&chunk).await?;
        }
        file.flush().await?;
        let actual = digester.finish();
        ensure!(actual == bundle, "received {actual} instead");
        Ok(archive)
    }
}

/// Returns whether a write failed because the disk has no free space or inodes.
fn is_disk_full(error: &anyhow::Error) -> bool {
    let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|cause| kinds.contains(&cause.kind())))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use bundle::BundleError;
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn full_disk_is_recognized_during_an_unpack() {
        let failed = |kind: io::ErrorKind| anyhow::Error::from(BundleError::Visit(kind.into()));
        assert!(is_disk_full(&failed(io::ErrorKind::StorageFull)));
        assert!(!is_disk_full(&failed(io::ErrorKind::PermissionDenied)));
    }

    #[tokio::test]
    async fn unpack_of_a_cancelled_fetch_holds_its_permit() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::in_dir(dir.path());
        let (fetcher, _failed) = Fetcher::new(Core::unreachable(), Arc::clone(&cache));
        let (content, archive) = (testkit::bundle::site("home"), cache.temporary().unwrap());
        (&archive.file).write_all(&content).unwrap();
        let bundle = Digest::of(&content);
        let permit = Arc::clone(&fetcher.download_permits).try_acquire_owned().unwrap();

        {
            // The removal of damaged blobs waits for the end of the addition.
            let _addition = cache.block_eviction();
            assert!(fetcher.store(bundle, archive, true, permit).now_or_never().is_none());
            assert_eq!(fetcher.download_permits.available_permits(), MAX_CONCURRENT_DOWNLOADS - 1);
        }
        let _all = fetcher.download_permits.acquire_many(MAX_CONCURRENT_DOWNLOADS as u32).await.unwrap();
        assert!(cache.index(bundle).unwrap().is_some());
    }
}
