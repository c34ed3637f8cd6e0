//! User ids for workers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use rustix::process::geteuid;

use super::config::UidRange;

/// The ids that may be given away; none unless the node is root.
pub struct Uids(Option<Arc<Pool>>);

struct Pool {
    range: UidRange,
    state: Mutex<State>,
}

struct State {
    next: u32,
    taken: HashSet<u32>,
}

/// An id that nobody else has until this is dropped.
pub struct Uid {
    /// The id.
    pub number: u32,
    pool: Arc<Pool>,
}

impl Uids {
    /// The ids of `range`, if this process may give ids away.
    pub fn new(range: UidRange) -> Self {
        let state = Mutex::new(State { next: range.first, taken: HashSet::new() });
        Self(geteuid().is_root().then(|| Arc::new(Pool { range, state })))
    }

    /// An id, not the one that was given back last: of that one, something may yet be on its way out. `None` when
    /// workers run as the node does.
    pub fn take(&self) -> anyhow::Result<Option<Uid>> {
        let Some(pool) = &self.0 else { return Ok(None) };
        let number = pool.take().context("every user id of SVC_NODE_WORKER_UIDS is in use")?;
        Ok(Some(Uid { number, pool: Arc::clone(pool) }))
    }
}

impl Pool {
    fn take(&self) -> Option<u32> {
        let UidRange { first, last } = self.range;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut candidates = (state.next..=last).chain(first..state.next);
        let number = candidates.find(|candidate| !state.taken.contains(candidate))?;
        state.taken.insert(number);
        state.next = if number == last { first } else { number + 1 };
        Some(number)
    }
}

impl Drop for Uid {
    fn drop(&mut self) {
        self.pool.state.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_round_and_are_never_had_twice() {
        let range = UidRange { first: 5000, last: 5002 };
        let state = Mutex::new(State { next: range.first, taken: HashSet::new() });
        let uids = Uids(Some(Arc::new(Pool { range, state })));
        let take = || uids.take().map(Option::unwrap);
        let first = take().unwrap();
        assert_eq!(first.number, 5000);
        drop(first);
        let held = [take().unwrap(), take().unwrap(), take().unwrap()];
        assert_eq!(held.each_ref().map(|uid| uid.number), [5001, 5002, 5000]);
        assert!(take().is_err());
        drop(held);
        assert_eq!(take().unwrap().number, 5001);
    }
}
