//! The blobs that are being read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// The number of readers of each blob. A blob is not deleted while it is read, so a read survives the replacement of
/// its object.
#[derive(Default)]
pub struct Readers(Mutex<HashMap<Uuid, usize>>);

/// A reader, until it is dropped.
pub struct Reader {
    blob: Uuid,
    readers: Arc<Readers>,
}

impl Readers {
    pub fn enter(self: &Arc<Self>, blob: Uuid) -> Reader {
        *self.counts().entry(blob).or_default() += 1;
        Reader { blob, readers: Arc::clone(self) }
    }

    pub fn contains(&self, blob: &Uuid) -> bool {
        self.counts().contains_key(blob)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut counts = self.readers.counts();
        if let Some(count) = counts.get_mut(&self.blob) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.blob);
            }
        }
    }
}
