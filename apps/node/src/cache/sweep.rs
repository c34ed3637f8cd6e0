//! Taking away what is not needed, and as much of what may be needed again as exceeds the bound.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};
use std::time::SystemTime;

use super::{Blob, Cache, remove, sync};
use crate::coding::Coding;
use crate::digest::Digest;

/// A bundle that is here.
struct Stored {
    bundle: Digest,
    used: SystemTime,
    contents: HashSet<Digest>,
}

impl Cache {
    /// States which bundles stay from now on, whatever their size.
    pub fn keep(&self, bundles: HashSet<Digest>) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = bundles;
    }

    /// Has a sweep made soon.
    pub fn ask_for_sweep(&self) {
        self.sweep_due.store(true, Ordering::Relaxed);
    }

    /// Has a sweep made soon if there is too much.
    pub fn ask_for_sweep_if_over(&self) {
        if self.bytes.load(Ordering::Relaxed) > self.bound {
            self.ask_for_sweep();
        }
    }

    /// Whether somebody asked for a sweep since the last one.
    pub fn is_sweep_due(&self) -> bool {
        self.sweep_due.load(Ordering::Relaxed)
    }

    /// Removes contents that belong to no bundle and, while there is more than the bound, bundles that are not kept;
    /// then a tenth of the bound more, so that not every deploy sweeps. Blocks, and so do those who add meanwhile. While
    /// somebody adds, nothing is done, and the sweep stays due: whoever waited for it would hold up all others.
    pub fn sweep(&self) -> io::Result<()> {
        let _alone = match self.turn.try_write() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.ask_for_sweep();
                return Ok(());
            }
        };
        self.sweep_due.store(false, Ordering::Relaxed);
        let sizes = self.sizes()?;
        let bundles = self.stored()?;
        let mut uses: HashMap<Digest, usize> = HashMap::new();
        for content in bundles.iter().flat_map(|stored| &stored.contents) {
            *uses.entry(*content).or_default() += 1;
        }
        let mut gone: Vec<Digest> = sizes.keys().filter(|content| !uses.contains_key(content)).copied().collect();
        let size_of = |content: &Digest| sizes.get(content).copied().unwrap_or_default();
        let mut total: u64 = uses.keys().map(size_of).sum();
        let goal = if total > self.bound { self.bound - self.bound / 10 } else { total };
        let mut evicted = Vec::new();
        for stored in self.by_last_use(bundles) {
            if total <= goal {
                break;
            }
            for content in stored.contents {
                let left = uses.entry(content).or_insert(1);
                *left -= 1;
                if *left == 0 {
                    total -= size_of(&content);
                    gone.push(content);
                }
            }
            evicted.push(stored.bundle);
        }
        self.take_away(&evicted, &gone)?;
        self.bytes.store(total, Ordering::Relaxed);
        if !evicted.is_empty() || !gone.is_empty() {
            tracing::info!(
                bundles = evicted.len(),
                contents = gone.len(),
                bytes = total,
                "took away what is not served"
            );
        }
        if total > self.bound {
            tracing::warn!(bytes = total, bound = self.bound, "what is served alone is more than the cache may hold");
        }
        Ok(())
    }

    /// The indexes first, and on disk: a bundle that has one is here as a whole.
    fn take_away(&self, bundles: &[Digest], contents: &[Digest]) -> io::Result<()> {
        for bundle in bundles {
            remove(&self.index_path(*bundle))?;
        }
        if !bundles.is_empty() {
            sync(&self.dir.join("sites"))?;
        }
        for content in contents {
            for coding in [Coding::Identity, Coding::Gzip, Coding::Brotli] {
                remove(&self.blob(Blob { content: *content, coding }))?;
            }
        }
        Ok(())
    }

    /// Those that may go, longest unused first.
    fn by_last_use(&self, mut bundles: Vec<Stored>) -> Vec<Stored> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        bundles.retain(|stored| !kept.contains(&stored.bundle));
        bundles.sort_by_key(|stored| stored.used);
        bundles
    }

    fn stored(&self) -> io::Result<Vec<Stored>> {
        let mut bundles = Vec::new();
        for entry in fs::read_dir(self.dir.join("sites"))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(bundle) = name.to_str().and_then(|name| Digest::from_hex(name.strip_suffix(".json")?).ok()) else {
                continue;
            };
            match self.index(bundle)? {
                Some(index) => bundles.push(Stored {
                    bundle,
                    used: entry.metadata()?.modified()?,
                    contents: index.contents().map(|asset| asset.content).collect(),
                }),
                None => remove(&entry.path())?,
            }
        }
        Ok(bundles)
    }

    /// How many bytes each content takes, in all its codings.
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
