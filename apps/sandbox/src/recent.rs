//! A list that keeps its newest items.

use std::collections::VecDeque;

/// The default limit of a list, such as the webhooks and the requests of a system.
const MAX_RECENT: usize = 1000;

/// The newest items, up to a limit.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    items: VecDeque<T>,
    limit: usize,
    removed: usize,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self::new(MAX_RECENT)
    }
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
        self.added() - 1
    }

    /// Returns the number of items that were added, including those that were removed.
    pub fn added(&self) -> usize {
        self.removed + self.items.len()
    }

    /// Returns the item with this number, unless it was removed.
    pub fn get(&self, number: usize) -> Option<&T> {
        self.items.get(number.checked_sub(self.removed)?)
    }

    /// Returns the item with this number, unless it was removed.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.items.get_mut(number.checked_sub(self.removed)?)
    }

    /// Returns the items, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.items.iter()
    }

    /// Returns the items with their numbers, oldest first.
    pub fn numbered(&self) -> impl DoubleEndedIterator<Item = (usize, &T)> {
        self.items.iter().enumerate().map(move |(index, item)| (self.removed + index, item))
    }

    /// Returns the items, oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.items.iter_mut()
    }
}
