//! Lists whose length is limited.

use serde::Serialize;

use super::{Result, internal};

/// The maximum length of a list in a response, as JSON, in bytes. The control plane refuses larger responses.
pub(super) const MAX_LIST_BYTES: usize = 8 << 20;

/// The items of a list, limited in the length of their JSON.
pub(super) struct LimitedList<T> {
    pub(super) items: Vec<T>,
    bytes: usize,
}

impl<T: Serialize> LimitedList<T> {
    pub(super) const fn new() -> Self {
        Self { items: Vec::new(), bytes: 0 }
    }

    /// Adds an item. Returns false if it does not fit.
    pub(super) fn push(&mut self, item: T) -> Result<bool> {
        self.bytes += serde_json::to_vec(&item).map_err(internal)?.len() + 1;
        let fits = self.bytes <= MAX_LIST_BYTES;
        if fits {
            self.items.push(item);
        }
        Ok(fits)
    }
}
