//! Cache eviction: removes blobs without an index and, above the size limit, unpinned bundles.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};
use std::time::SystemTime;

use super::{Blob, Cache, disk_size, remove, sync};
use crate::coding::Coding;
use crate::digest::Digest;

/// An eviction waits for the additions in progress after this many evictions that they blocked.
const MAX_BLOCKED_EVICTIONS: u32 = 10;

/// A stored bundle.
struct StoredBundle {
    bundle: Digest,
    last_used: SystemTime,
    /// The space that its index takes on disk.
    index_size: u64,
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

    /// Requests an eviction down to 90 % of the used space, because the disk is full.
    pub fn request_space(&self) {
        self.is_disk_full.store(true, Ordering::Relaxed);
        self.request_eviction();
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
    /// the limit, so that not every deploy evicts. If the disk was full, the limit is the used space. Blocks additions
    /// while it runs. If an addition is in progress, does nothing and returns false, and the eviction stays requested:
    /// if it waited for the lock, all later additions would wait too. But after several such calls, it waits, because
    /// overlapping additions could block it forever.
    pub fn evict(&self) -> io::Result<bool> {
        let _exclusive = match self.removal_lock.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if self.blocked_evictions.fetch_add(1, Ordering::Relaxed) < MAX_BLOCKED_EVICTIONS {
                    self.request_eviction();
                    return Ok(false);
                }
                tracing::warn!("additions to the cache block its eviction; new additions wait for it");
                self.removal_lock.write().unwrap_or_else(PoisonError::into_inner)
            }
        };
        self.blocked_evictions.store(0, Ordering::Relaxed);
        self.eviction_due.store(false, Ordering::Relaxed);
        let sizes = self.sizes()?;
        let bundles = self.stored_bundles()?;
        let mut uses: HashMap<Digest, usize> = HashMap::new();
        for content in bundles.iter().flat_map(|stored| &stored.contents) {
            *uses.entry(*content).or_default() += 1;
        }
        let mut unused: Vec<Digest> = sizes.keys().filter(|content| !uses.contains_key(content)).copied().collect();
        let size_of = |content: &Digest| sizes.get(content).copied().unwrap_or_default();
        let indexes: u64 = bundles.iter().map(|stored| stored.index_size).sum();
        let mut total = uses.keys().map(size_of).sum::<u64>() + indexes;
        let is_disk_full = self.is_disk_full.swap(false, Ordering::Relaxed);
        let limit = if is_disk_full { total.min(self.max_bytes) } else { self.max_bytes };
        let target = if is_disk_full || total > limit { limit - limit / 10 } else { total };
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
            total -= stored.index_size;
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
                Some(index) => {
                    let metadata = entry.metadata()?;
                    bundles.push(StoredBundle {
                        bundle,
                        last_used: metadata.modified()?,
                        index_size: disk_size(&metadata),
                        contents: index.contents().map(|asset| asset.content).collect(),
                    });
                }
                None => remove(&entry.path())?,
            }
        }
        Ok(bundles)
    }

    /// Returns the space that each content takes on disk, summed over its codings.
    fn sizes(&self) -> io::Result<HashMap<Digest, u64>> {
        let mut sizes = HashMap::new();
        for folder in fs::read_dir(self.dir.join("blobs"))? {
            for entry in fs::read_dir(folder?.path())? {
                let entry = entry?;
                let name = entry.file_name();
                let digits = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
                if let Ok(content) = Digest::from_hex(digits) {
                    *sizes.entry(content).or_default() += disk_size(&entry.metadata()?);
                }
            }
        }
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::index::{Asset, Index};

    const BLOCK: u64 = 4096;

    /// Stores a bundle of one content that was last used at this second.
    fn store(cache: &Cache, content: &[u8], last_used: u64) -> Digest {
        let (bundle, temporary) = (Digest::of(content), cache.temporary().unwrap());
        (&temporary.file).write_all(content).unwrap();
        cache.add_blob(bundle, temporary).unwrap();
        let asset = Asset::new(bundle, content.len() as u64);
        let index = Index { assets: [("/a".to_owned(), asset)].into(), ..Index::default() };
        cache.add_index(bundle, &index).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(last_used);
        File::open(cache.index_path(bundle)).unwrap().set_modified(time).unwrap();
        bundle
    }

    #[test]
    fn file_without_blocks_counts_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, length) = (Cache::in_dir(dir.path()), 1 << 20);
        let temporary = cache.temporary().unwrap();
        temporary.file.set_len(length).unwrap();
        cache.add_blob(Digest::of(b"sparse"), temporary).unwrap();
        assert!(cache.bytes.load(Ordering::Relaxed) >= length);
    }

    #[test]
    fn every_file_counts_at_least_a_block() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::in_dir(dir.path());
        store(&cache, b"", 1);
        let bundle = store(&cache, b"small", 2);
        assert!(cache.bytes.load(Ordering::Relaxed) >= 4 * BLOCK);
        // A replaced index does not count twice.
        let before = cache.bytes.load(Ordering::Relaxed);
        cache.add_index(bundle, &cache.index(bundle).unwrap().unwrap()).unwrap();
        assert_eq!(cache.bytes.load(Ordering::Relaxed), before);
        assert!(cache.evict().unwrap());
        assert!(cache.bytes.load(Ordering::Relaxed) >= 4 * BLOCK);
    }

    #[test]
    fn eviction_waits_for_additions_that_block_it_repeatedly() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, unused) = (Cache::in_dir(dir.path()), Digest::of(b""));
        cache.add_blob(unused, cache.temporary().unwrap()).unwrap();
        let addition = cache.block_eviction();
        for _ in 0..MAX_BLOCKED_EVICTIONS {
            assert!(!cache.evict().unwrap() && cache.is_eviction_due());
        }
        thread::scope(|scope| {
            let eviction = scope.spawn(|| cache.evict().unwrap());
            // From now on, new additions wait for the eviction.
            while cache.removal_lock.try_read().is_ok() {
                thread::yield_now();
            }
            assert!(!eviction.is_finished());
            drop(addition);
            assert!(eviction.join().unwrap());
        });
        assert!(!cache.is_eviction_due() && cache.size(unused.into()).unwrap().is_none());
    }

    #[test]
    fn full_disk_evicts_the_least_recently_used_bundle_below_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::in_dir(dir.path());
        let (old, new) = (store(&cache, b"old", 1), store(&cache, b"new", 2));
        assert!(cache.evict().unwrap());
        assert!(cache.index(old).unwrap().is_some());

        cache.request_space();
        assert!(cache.is_eviction_due() && cache.evict().unwrap());
        assert!(cache.index(old).unwrap().is_none() && cache.size(old.into()).unwrap().is_none());
        assert!(cache.index(new).unwrap().is_some());
        // The request is done.
        assert!(cache.evict().unwrap());
        assert!(cache.index(new).unwrap().is_some());
    }
}
