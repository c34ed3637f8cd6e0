//! Cache eviction: removes blobs without an index and, above the size limit, unpinned bundles.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};
use std::time::SystemTime;

use super::{Blob, Cache, remove, sync};
use crate::coding::Coding;
use crate::digest::Digest;

/// A stored bundle.
struct StoredBundle {
    bundle: Digest,
    last_used: SystemTime,
    contents: HashSet<Digest>,
}

impl Cache {
    /// Pins these bundles, and unpins all others.
    pub fn pin(&self, bundles: HashSet<Digest>) {
        *self.pinned.lock().unwrap_or_else(PoisonError::into_inner) = bundles;
    }

    /// Requests an eviction.
    pub fn request_eviction(&self) {
        self.eviction_due.store(true, Ordering::Relaxed);
    }

    /// Requests an eviction if the cache exceeds its limit.
    pub fn request_eviction_if_over_limit(&self) {
        if self.bytes.load(Ordering::Relaxed) > self.max_bytes {
            self.request_eviction();
        }
    }

    /// Returns whether an eviction was requested since the last one.
    pub fn is_eviction_due(&self) -> bool {
        self.eviction_due.load(Ordering::Relaxed)
    }

    /// Removes blobs that belong to no bundle. If the cache exceeds its limit, evicts unpinned bundles down to 90 % of
    /// the limit, so that not every deploy evicts. Blocks additions while it runs. If an addition is in progress, does
    /// nothing and returns false, and the eviction stays requested: if it waited for the lock, all later additions
    /// would wait too.
    pub fn evict(&self) -> io::Result<bool> {
        let _exclusive = match self.removal_lock.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.request_eviction();
                return Ok(false);
            }
        };
        self.eviction_due.store(false, Ordering::Relaxed);
        let sizes = self.sizes()?;
        let bundles = self.stored_bundles()?;
        let mut uses: HashMap<Digest, usize> = HashMap::new();
        for content in bundles.iter().flat_map(|stored| &stored.contents) {
            *uses.entry(*content).or_default() += 1;
        }
        let mut unused: Vec<Digest> = sizes.keys().filter(|content| !uses.contains_key(content)).copied().collect();
        let size_of = |content: &Digest| sizes.get(content).copied().unwrap_or_default();
        let mut total: u64 = uses.keys().map(size_of).sum();
        let target = if total > self.max_bytes { self.max_bytes - self.max_bytes / 10 } else { total };
        let mut evicted = Vec::new();
        for stored in self.evictable(bundles) {
            if total <= target {
                break;
            }
            for content in stored.contents {
                let count = uses.entry(content).or_insert(1);
                *count -= 1;
                if *count == 0 {
                    total -= size_of(&content);
                    unused.push(content);
                }
            }
            evicted.push(stored.bundle);
        }
        self.remove_files(&evicted, &unused)?;
        self.bytes.store(total, Ordering::Relaxed);
        if !evicted.is_empty() || !unused.is_empty() {
            tracing::info!(bundles = evicted.len(), contents = unused.len(), bytes = total, "evicted unused bundles");
        }
        if total > self.max_bytes {
            tracing::warn!(
                bytes = total,
                max_bytes = self.max_bytes,
                "the pinned bundles exceed the size limit of the cache"
            );
        }
        Ok(true)
    }

    /// Removes and syncs the indexes first: an index states that all blobs of its bundle are stored.
    fn remove_files(&self, bundles: &[Digest], contents: &[Digest]) -> io::Result<()> {
        for bundle in bundles {
            remove(&self.index_path(*bundle))?;
        }
        if !bundles.is_empty() {
            sync(&self.dir.join("sites"))?;
        }
        for content in contents {
            for coding in [Coding::Identity, Coding::Gzip, Coding::Brotli] {
                remove(&self.blob_path(Blob { content: *content, coding }))?;
            }
        }
        Ok(())
    }

    /// Returns the unpinned bundles, least recently used first.
    fn evictable(&self, mut bundles: Vec<StoredBundle>) -> Vec<StoredBundle> {
        let pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        bundles.retain(|stored| !pinned.contains(&stored.bundle));
        bundles.sort_by_key(|stored| stored.last_used);
        bundles
    }

    fn stored_bundles(&self) -> io::Result<Vec<StoredBundle>> {
        let mut bundles = Vec::new();
        for entry in fs::read_dir(self.dir.join("sites"))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(bundle) = name.to_str().and_then(|name| Digest::from_hex(name.strip_suffix(".json")?).ok()) else {
                continue;
            };
            match self.index(bundle)? {
                Some(index) => bundles.push(StoredBundle {
                    bundle,
                    last_used: entry.metadata()?.modified()?,
                    contents: index.contents().map(|asset| asset.content).collect(),
                }),
                None => remove(&entry.path())?,
            }
        }
        Ok(bundles)
    }

    /// Returns the size of each content on disk, summed over its codings.
    fn sizes(&self) -> io::Result<HashMap<Digest, u64>> {
        let mut sizes = HashMap::new();
        for folder in fs::read_dir(self.dir.join("blobs"))? {
            for entry in fs::read_dir(folder?.path())? {
                let entry = entry?;
                let name = entry.file_name();
                let digits = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
                if let Ok(content) = Digest::from_hex(digits) {
                    *sizes.entry(content).or_default() += entry.metadata()?.len();
                }
            }
        }
        Ok(sizes)
    }
}
