//! Limits on the memory of large requests and rows, for each owner of projects and for all projects of the node. The
//! part `site` names the owner. A share for each project would not suffice, because a user can have many projects.

use std::sync::Arc;
use std::time::Duration;

use semaphores::KeyedSemaphores;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::timeout;

const UNIT_BYTES: usize = 1 << 10;
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The memory that all calls may use for one purpose, such as arguments or rows. Calls reserve memory for the purposes
/// in a fixed order, and wait only once for each purpose, so two calls never wait for each other.
pub struct Memory {
    all: Arc<Semaphore>,
    owners: KeyedSemaphores<String>,
    owner_bytes: usize,
}

/// The memory that the calls of one owner may use for one purpose.
#[derive(Clone)]
pub struct OwnerMemory {
    all: Arc<Semaphore>,
    owner: Arc<Semaphore>,
    owner_bytes: usize,
}

/// The cause of a failed reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// The calls of the owner use its share.
    Owner,
    /// The calls of all owners use the memory of the node.
    Node,
}

/// Reserved memory, until it is dropped.
pub struct Reservation {
    all: OwnedSemaphorePermit,
    owner: OwnedSemaphorePermit,
}

impl Memory {
    /// Creates the memory with these limits on all owners and on each of them.
    pub fn new(all_bytes: usize, owner_bytes: usize) -> Self {
        let all = Arc::new(Semaphore::new(all_bytes / UNIT_BYTES));
        Self { all, owners: KeyedSemaphores::new(owner_bytes / UNIT_BYTES), owner_bytes }
    }

    /// Returns the memory of an owner.
    pub fn of(&self, owner: &str) -> OwnerMemory {
        let (all, owner) = (Arc::clone(&self.all), self.owners.of(owner.to_owned()));
        OwnerMemory { all, owner, owner_bytes: self.owner_bytes }
    }

    /// Waits until memory is available.
    ///
    /// # Errors
    /// Returns an error if other calls of the owner or of the node use the memory for too long.
    pub async fn reserve(&self, owner: &str, bytes: usize) -> Result<Reservation, Exhausted> {
        let memory = self.of(owner);
        let reserved = timeout(WAIT_TIMEOUT, memory.reserve(bytes)).await;
        // If both are exhausted, the owner may wait because of the node: its calls hold its share while they wait.
        reserved
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| if memory.node_lacks(bytes) { Exhausted::Node } else { Exhausted::Owner })
    }
}

impl OwnerMemory {
    /// Waits until memory is available. If `bytes` exceeds the limit of an owner, reserves all memory of the owner.
    ///
    /// # Errors
    /// Returns an error only if the node is stopping.
    pub async fn reserve(&self, bytes: usize) -> Result<Reservation, AcquireError> {
        let units = self.units(bytes);
        let owner = Arc::clone(&self.owner).acquire_many_owned(units).await?;
        let all = Arc::clone(&self.all).acquire_many_owned(units).await?;
        Ok(Reservation { all, owner })
    }

    /// Reserves memory without waiting.
    ///
    /// # Errors
    /// Returns an error if the memory is not available at the moment, or exceeds the limit of an owner.
    pub fn try_reserve(&self, bytes: usize) -> Result<Reservation, TryAcquireError> {
        let units = units(bytes);
        let owner = Arc::clone(&self.owner).try_acquire_many_owned(units)?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(units)?;
        Ok(Reservation { all, owner })
    }

    /// Returns the limit of an owner.
    pub const fn owner_bytes(&self) -> usize {
        self.owner_bytes
    }

    fn units(&self, bytes: usize) -> u32 {
        units(bytes.min(self.owner_bytes))
    }

    /// Returns whether the memory of all owners is exhausted for a reservation of this size.
    fn node_lacks(&self, bytes: usize) -> bool {
        self.all.available_permits() < self.units(bytes) as usize
    }
}

impl Reservation {
    /// Releases the memory that exceeds this number of bytes.
    pub fn shrink(&mut self, bytes: usize) {
        for permit in [&mut self.all, &mut self.owner] {
            drop(permit.split(permit.num_permits().saturating_sub(units(bytes) as usize)));
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn owners_share_the_memory_of_the_node() {
        let memory = Memory::new(512 << 20, 64 << 20);
        let reserve = |owner: &str, bytes| memory.of(owner).reserve(bytes).now_or_never().map(Result::unwrap);
        let mut held = reserve("usr_1", usize::MAX).unwrap();
        assert!(reserve("usr_1", usize::MAX).is_none(), "more than the limit of an owner");
        let others: Vec<_> = (2..9).map(|number| reserve(&format!("usr_{number}"), usize::MAX).unwrap()).collect();
        assert!(reserve("usr_9", usize::MAX).is_none(), "more than the limit of the node");
        held.shrink(1 << 20);
        assert!(reserve("usr_1", usize::MAX).is_none(), "more than the rest");
        assert!(reserve("usr_1", 63 << 20).is_some());
        held.shrink(2 << 20);
        assert!(reserve("usr_1", (63 << 20) + 1).is_none(), "a reservation does not grow");
        drop(held);
        assert!(reserve("usr_1", usize::MAX).is_some());
        drop(others);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_reservation_names_the_exhausted_memory() {
        let memory = Memory::new(4 << 20, 2 << 20);
        let held = memory.reserve("usr_1", 2 << 20).await.unwrap();
        assert_eq!(memory.reserve("usr_1", 1 << 20).await.err(), Some(Exhausted::Owner));
        let other = memory.reserve("usr_2", 2 << 20).await.unwrap();
        assert_eq!(memory.reserve("usr_3", 1 << 20).await.err(), Some(Exhausted::Node));
        drop((held, other));
        assert!(memory.reserve("usr_3", 1 << 20).await.is_ok());
    }
}
