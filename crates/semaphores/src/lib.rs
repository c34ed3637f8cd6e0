//! Semaphores by key, such as an organization. Each one exists only while it is in use, so the memory is bounded by the
//! concurrent work.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// The semaphores of the keys that are in use. All have the same number of permits.
#[derive(Debug)]
pub struct KeyedSemaphores<K> {
    permits: usize,
    semaphores: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl<K: Eq + Hash> KeyedSemaphores<K> {
    /// Creates an empty set. Each key gets this number of permits.
    #[must_use]
    pub fn new(permits: usize) -> Self {
        Self { permits, semaphores: Mutex::default() }
    }

    /// Returns the semaphore of a key. Owned permits, and waits for them, keep it in memory.
    pub fn of(&self, key: K) -> Arc<Semaphore> {
        let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = semaphores.get(&key).and_then(Weak::upgrade) {
            return semaphore;
        }
        semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(self.permits));
        semaphores.insert(key, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_separate_permits() {
        let semaphores = KeyedSemaphores::new(1);
        let permit = semaphores.of("a").try_acquire_owned().unwrap();
        assert!(semaphores.of("a").try_acquire_owned().is_err());
        assert!(semaphores.of("b").try_acquire_owned().is_ok());
        drop(permit);
        assert!(semaphores.of("a").try_acquire_owned().is_ok());
    }

    #[test]
    fn unused_semaphores_are_dropped() {
        let semaphores = KeyedSemaphores::new(1);
        let keys = || semaphores.semaphores.lock().unwrap().len();
        let permits = [1, 2, 3].map(|key| semaphores.of(key).try_acquire_owned().unwrap());
        assert_eq!(keys(), 3);
        drop(permits);
        let _permit = semaphores.of(4).try_acquire_owned().unwrap();
        assert_eq!(keys(), 1);
    }
}
