//! Limits on concurrent work, by key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// Permits with the same limit for each key, such as a project or a host.
pub struct KeyedPermits<K> {
    limit: usize,
    /// The permits of the keys that are in use.
    permits: Mutex<HashMap<K, Arc<Semaphore>>>,
}

impl<K: Eq + Hash> KeyedPermits<K> {
    pub fn new(limit: usize) -> Self {
        Self { limit, permits: Mutex::default() }
    }

    /// Returns the permits of a key.
    pub fn of(&self, key: K) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        if !permits.contains_key(&key) {
            // Permits in use, and waits for them, hold references.
            permits.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        Arc::clone(permits.entry(key).or_insert_with(|| Arc::new(Semaphore::new(self.limit))))
    }

    /// Returns the number of keys in memory.
    #[cfg(test)]
    pub fn keys(&self) -> usize {
        self.permits.lock().unwrap().len()
    }
}
