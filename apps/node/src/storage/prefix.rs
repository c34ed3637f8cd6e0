//! The state of a project's prefix while the node runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OnceCell, Semaphore};
use uuid::Uuid;

use super::ids::BlobIds;
use super::index::MIN_BLOB_BYTES;

/// The largest number of calls with long arguments or results, a few MiB each, of a project at the same time.
const MAX_BULK_CALLS: usize = 8;

/// The prefixes that were used since the start, by name.
#[derive(Default)]
pub struct Prefixes(Mutex<HashMap<String, Arc<Prefix>>>);

/// The state of a prefix.
pub struct Prefix {
    pub name: String,
    /// Set when the index of the prefix is complete and this node is its owner.
    pub ready: OnceCell<()>,
    /// The last quota in bytes; 0 before the first use.
    quota_bytes: AtomicU64,
    /// Permits for calls with long arguments or results.
    pub bulk_calls: Arc<Semaphore>,
    /// The blobs whose puts are in progress, and the bytes that they reserve. Until the last sweep of the prefix, also
    /// contains the first id of the blobs that an earlier process may have left.
    in_progress: Mutex<BTreeMap<Uuid, u64>>,
    /// Whether the index states that blobs without an object may exist. The mutex is locked while this changes.
    pub is_marked: AsyncMutex<bool>,
}

impl Prefixes {
    /// Returns the state of a prefix.
    pub fn get(&self, name: &str) -> Arc<Prefix> {
        let mut prefixes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let prefix = prefixes.entry(name.to_owned()).or_insert_with(|| Arc::new(Prefix::new(name)));
        Arc::clone(prefix)
    }

    /// Forgets the state of a prefix whose objects are deleted.
    pub fn remove(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

impl Prefix {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ready: OnceCell::new(),
            quota_bytes: AtomicU64::new(0),
            bulk_calls: Arc::new(Semaphore::new(MAX_BULK_CALLS)),
            in_progress: Mutex::default(),
            is_marked: AsyncMutex::new(false),
        }
    }

    /// Sets the quota and returns whether it changed.
    pub fn set_quota(&self, quota_bytes: u64) -> bool {
        self.quota_bytes.swap(quota_bytes, Ordering::Relaxed) != quota_bytes
    }

    /// Begins a put. Reserves `bytes`, the size as far as it is known, but at least [`MIN_BLOB_BYTES`]. Returns the id of
    /// the new blob.
    pub fn begin(&self, ids: &BlobIds, bytes: u64) -> Uuid {
        let mut in_progress = self.in_progress();
        let blob = ids.next();
        in_progress.insert(blob, bytes.max(MIN_BLOB_BYTES));
        blob
    }

    /// Adds the first id of the blobs that an earlier process may have left.
    pub fn add_unswept(&self, from: Uuid) {
        self.in_progress().insert(from, 0);
    }

    /// Ends a put, or the sweeps of the blobs of an earlier process.
    pub fn end(&self, blob: Uuid) {
        self.in_progress().remove(&blob);
    }

    /// Reserves at least this number of bytes for a blob in progress.
    pub fn reserve(&self, blob: Uuid, bytes: u64) {
        if let Some(reserved) = self.in_progress().get_mut(&blob) {
            *reserved = bytes.max(*reserved);
        }
    }

    /// Returns the number of bytes that a blob in progress reserves.
    pub fn reserved_by(&self, blob: Uuid) -> u64 {
        self.in_progress().get(&blob).copied().unwrap_or_default()
    }

    /// Ends the reservation of a blob, which stays in progress.
    pub fn release(&self, blob: Uuid) {
        if let Some(reserved) = self.in_progress().get_mut(&blob) {
            *reserved = 0;
        }
    }

    /// Returns the number of bytes that the puts in progress reserve.
    pub fn reserved_bytes(&self) -> u64 {
        self.in_progress().values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns the id of the oldest blob that may have no object.
    pub fn oldest(&self) -> Option<Uuid> {
        self.in_progress().first_key_value().map(|(blob, _)| *blob)
    }

    fn in_progress(&self) -> MutexGuard<'_, BTreeMap<Uuid, u64>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
