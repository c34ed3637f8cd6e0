//! The pool of user ids for worker processes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use rustix::process::geteuid;

use super::config::UidRange;

/// The pool; `None` unless the node runs as root.
pub struct Uids(Option<Arc<Pool>>);

struct Pool {
    range: UidRange,
    state: Mutex<State>,
}

struct State {
    next: u32,
    allocated: HashSet<u32>,
}

/// An allocated id, released when dropped.
pub struct Uid {
    pub number: u32,
    pool: Arc<Pool>,
}

impl Uids {
    /// A pool of the ids in `range`, if this process runs as root.
    pub fn new(range: UidRange) -> Self {
        let state = Mutex::new(State { next: range.first, allocated: HashSet::new() });
        Self(geteuid().is_root().then(|| Arc::new(Pool { range, state })))
    }

    /// Allocates an id, in round-robin order, because files or sockets of a released id may still exist. Returns `None`
    /// if workers run as the node's user.
    pub fn allocate(&self) -> anyhow::Result<Option<Uid>> {
        let Some(pool) = &self.0 else { return Ok(None) };
        let number = pool.allocate().context("every user id of SVC_NODE_WORKER_UIDS is in use")?;
        Ok(Some(Uid { number, pool: Arc::clone(pool) }))
    }
}

impl Pool {
    fn allocate(&self) -> Option<u32> {
        let UidRange { first, last } = self.range;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut candidates = (state.next..=last).chain(first..state.next);
        let number = candidates.find(|candidate| !state.allocated.contains(candidate))?;
        state.allocated.insert(number);
        state.next = if number == last { first } else { number + 1 };
        Some(number)
    }
}

impl Drop for Uid {
    fn drop(&mut self) {
        self.pool.state.lock().unwrap_or_else(PoisonError::into_inner).allocated.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_allocated_round_robin() {
        let range = UidRange { first: 5000, last: 5002 };
        let state = Mutex::new(State { next: range.first, allocated: HashSet::new() });
        let uids = Uids(Some(Arc::new(Pool { range, state })));
        let allocate = || uids.allocate().map(Option::unwrap);
        let first = allocate().unwrap();
        assert_eq!(first.number, 5000);
        drop(first);
        let uids_in_use = [allocate().unwrap(), allocate().unwrap(), allocate().unwrap()];
        assert_eq!(uids_in_use.each_ref().map(|uid| uid.number), [5001, 5002, 5000]);
        assert!(allocate().is_err());
        drop(uids_in_use);
        assert_eq!(allocate().unwrap().number, 5001);
    }
}
