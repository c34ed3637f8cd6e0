//! Objects that must not be deleted while they are in use.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of uses of each object, by its key in a store.
#[derive(Default)]
pub struct InUse<K>(Mutex<HashMap<K, usize>>);

/// A use of an object, until it is dropped.
pub struct Use<K: Eq + Hash> {
    key: K,
    objects: Arc<InUse<K>>,
}

impl<K: Eq + Hash> InUse<K> {
    /// Begins a use.
    pub fn begin(self: &Arc<Self>, key: K) -> Use<K>
    where
        K: Clone,
    {
        *self.counts().entry(key.clone()).or_default() += 1;
        Use { key, objects: Arc::clone(self) }
    }

    /// Returns whether an object is in use.
    pub fn contains<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.counts().contains_key(key)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for Use<K> {
    fn drop(&mut self) {
        let mut counts = self.objects.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_in_use_until_its_last_use_ends() {
        let objects = Arc::<InUse<String>>::default();
        let (one, two) = (objects.begin("a".to_owned()), objects.begin("a".to_owned()));
        drop(one);
        assert!(objects.contains("a") && !objects.contains("b"));
        drop(two);
        assert!(!objects.contains("a") && objects.counts().is_empty());
    }
}
