//! A list that keeps its newest items.

use std::collections::VecDeque;

/// The limit of each list of webhooks and of requests.
pub(crate) const MAX_RECENT: usize = 1000;

/// The newest items, up to a limit.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    items: VecDeque<T>,
    limit: usize,
    removed: usize,
}

impl<T> Recent<T> {
    pub fn new(limit: usize) -> Self {
        Self { items: VecDeque::new(), limit, removed: 0 }
    }

    /// Adds an item. Returns its number: the number of items that were added before.
    pub fn push(&mut self, item: T) -> usize {
        if self.items.len() == self.limit {
            self.items.pop_front();
            self.removed += 1;
        }
        self.items.push_back(item);
        self.removed + self.items.len() - 1
    }

    /// Returns the item with this number, unless it was removed.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.items.get_mut(number.checked_sub(self.removed)?)
    }

    /// Returns the items, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.items.iter()
    }

    /// Returns the items, oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.items.iter_mut()
    }
}
