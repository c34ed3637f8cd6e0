//! The pool of user ids for worker processes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use rustix::process::geteuid;

use super::config::UidRange;
use super::uid_processes::{kill_processes, uids_in_use};
use crate::random;

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

/// An allocated id. Dropping it kills the processes that still have the id, and releases the id. The drop blocks.
pub struct Uid {
    pub number: u32,
    pool: Arc<Pool>,
}

impl Uids {
    /// Creates a pool of the ids in `range`, if this process runs as root. It begins at a random id, because files or
    /// sockets of the ids that the previous node used last may still exist.
    pub fn new(range: UidRange) -> Self {
        let offset = u32::try_from(random::id().as_u128() % (u128::from(range.last - range.first) + 1));
        let state = Mutex::new(State { next: range.first + offset.unwrap_or_default(), allocated: HashSet::new() });
        Self(geteuid().is_root().then(|| Arc::new(Pool { range, state })))
    }

    /// Allocates an id that no process has, in round-robin order, because files or sockets of a released id may still
    /// exist. Returns `None` if workers run as the node's user. Blocks.
    pub fn allocate(&self) -> anyhow::Result<Option<Uid>> {
        let Some(pool) = &self.0 else { return Ok(None) };
        let number = pool.allocate()?.context("every user id of SVC_NODE_WORKER_UIDS is in use")?;
        Ok(Some(Uid { number, pool: Arc::clone(pool) }))
    }
}

impl Pool {
    fn allocate(&self) -> anyhow::Result<Option<u32>> {
        let UidRange { first, last } = self.range;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_candidate = |uid: u32| (first..=last).contains(&uid) && !state.allocated.contains(&uid);
        // The list is read under the lock, so that it includes the processes that a worker left under an id that was
        // released before.
        let in_use = uids_in_use(is_candidate).context("failed to list the processes of the machine")?;
        let mut candidates = (state.next..=last).chain(first..state.next);
        let number = candidates.find(|candidate| !state.allocated.contains(candidate) && !in_use.contains(candidate));
        if let Some(number) = number {
            state.allocated.insert(number);
            state.next = if number == last { first } else { number + 1 };
        }
        Ok(number)
    }
}

impl Drop for Uid {
    fn drop(&mut self) {
        // If processes survive, `allocate` skips the id.
        match kill_processes(self.number) {
            Ok(0) => {}
            Ok(processes) => tracing::warn!(uid = self.number, processes, "killed processes that a worker left behind"),
            Err(error) => {
                tracing::error!(uid = self.number, %error, "failed to kill the processes that a worker left behind");
            }
        }
        self.pool.state.lock().unwrap_or_else(PoisonError::into_inner).allocated.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_allocated_round_robin() {
        // No process has these ids, even where user namespaces are in use.
        let range = UidRange { first: 4_294_000_000, last: 4_294_000_002 };
        let state = Mutex::new(State { next: range.first, allocated: HashSet::new() });
        let uids = Uids(Some(Arc::new(Pool { range, state })));
        let allocate = || uids.allocate().map(Option::unwrap);
        let first = allocate().unwrap();
        assert_eq!(first.number, range.first);
        drop(first);
        let uids_in_use = [allocate().unwrap(), allocate().unwrap(), allocate().unwrap()];
        assert_eq!(uids_in_use.each_ref().map(|uid| uid.number - range.first), [1, 2, 0]);
        assert!(allocate().is_err());
        drop(uids_in_use);
        assert_eq!(allocate().unwrap().number, range.first + 1);
    }

    #[test]
    fn pool_begins_within_its_range() {
        for range in [UidRange { first: 5000, last: 5000 }, UidRange { first: 1000, last: u32::MAX - 1 }] {
            let Some(pool) = Uids::new(range).0 else { return eprintln!("SKIPPED: only root has a pool of user ids") };
            let next = pool.state.lock().unwrap().next;
            assert!((range.first..=range.last).contains(&next), "{next}");
        }
    }
}
