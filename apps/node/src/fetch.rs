//! Getting bundles.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::cache::{Cache, Temporary};
use crate::client::Core;
use crate::digest::{Digest, Digester};
use crate::index::Index;
use crate::unpack::unpack;

/// How many bundles are fetched at a time.
const AT_ONCE: usize = 4;
/// A bundle that is bad for good is fetched again this often at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// After so many attempts, in some three seconds, it is more than a moment's trouble.
const HOPELESS: u64 = 6;

/// Gets bundles out of the cache, or from the control plane into it.
#[derive(Clone)]
pub struct Fetcher {
    /// Where bundles are kept.
    pub cache: Arc<Cache>,
    core: Core,
    slots: Arc<Semaphore>,
    hopeless: UnboundedSender<Digest>,
}

impl Fetcher {
    /// A fetcher from `core` into `cache`, and the bundles that it cannot get although it tries again and again: each once
    /// for each time that it is wanted.
    pub fn new(core: Core, cache: Arc<Cache>) -> (Self, UnboundedReceiver<Digest>) {
        let (hopeless, told) = unbounded_channel();
        (Self { cache, core, slots: Arc::new(Semaphore::new(AT_ONCE)), hopeless }, told)
    }

    /// The index of a bundle of `size` bytes, as soon as there is one. Tries for ever.
    pub async fn obtain(self, bundle: Digest, size: i64) -> (Digest, Index) {
        let mut backoff = Backoff::up_to(LONGEST_PAUSE);
        let mut attempts = 0_u64;
        loop {
            match self.attempt(bundle, size).await {
                Ok(index) => return (bundle, index),
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(%bundle, error, "a bundle is not to be had; what it would replace stays");
                }
            }
            attempts += 1;
            if attempts == HOPELESS {
                // Who listens lives as long as this.
                let _ = self.hopeless.send(bundle);
            }
            sleep(backoff.pause()).await;
        }
    }

    /// The same for a bundle that is damaged here, which is given up first.
    pub async fn obtain_anew(self, bundle: Digest, size: i64) -> (Digest, Index) {
        let mut backoff = Backoff::up_to(LONGEST_PAUSE);
        loop {
            let cache = Arc::clone(&self.cache);
            match spawn_blocking(move || cache.give_up(bundle)).await.map_err(Into::into).flatten() {
                Ok(()) => return self.obtain(bundle, size).await,
                Err(error) => tracing::error!(%bundle, %error, "a damaged bundle cannot be removed"),
            }
            sleep(backoff.pause()).await;
        }
    }

    async fn attempt(&self, bundle: Digest, size: i64) -> anyhow::Result<Index> {
        let cache = Arc::clone(&self.cache);
        let look = move || {
            // A sweep that began before the bundle was wanted may be about to take it.
            let _adding = cache.adding();
            cache.index(bundle)
        };
        if let Some(index) = spawn_blocking(look).await?? {
            return Ok(index);
        }
        let _slot = self.slots.acquire().await?;
        let archive = self.download(bundle, size).await?;
        let cache = Arc::clone(&self.cache);
        let unpack = move || {
            let unpacked = unpack(&cache, bundle, &archive.file);
            if unpacked.is_err() {
                // What it got as far as to file belongs to no bundle.
                cache.sweep()?;
            }
            unpacked
        };
        spawn_blocking(unpack).await?
    }

    /// The archive, verified.
    async fn download(&self, bundle: Digest, size: i64) -> anyhow::Result<Temporary> {
        let mut response = self.core.bundle(bundle).await?;
        let archive = self.cache.temporary()?;
        let mut file = tokio::fs::File::from_std(archive.file.try_clone()?);
        let mut digester = Digester::default();
        let mut left = u64::try_from(size)?;
        while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
            let length = chunk.len() as u64;
            ensure!(length <= left, "more than {size} bytes came");
            left -= length;
            digester.update(&chunk);
            file.write_all(&chunk).await?;
        }
        file.flush().await?;
        let came = digester.finish();
        ensure!(came == bundle, "{came} came instead");
        Ok(archive)
    }
}
