//! Limits on the memory of large requests and rows, for each project and for all projects of the node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::timeout;

const UNIT_BYTES: usize = 1 << 10;
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The memory that calls may use for one purpose, such as arguments or rows. Calls reserve memory for the purposes in a
/// fixed order, and wait only once for each purpose, so two calls never wait for each other.
#[derive(Clone)]
pub struct Memory {
    all: Arc<Semaphore>,
    project: Arc<Semaphore>,
    project_bytes: usize,
}

/// The memory of all projects for one purpose.
pub struct ProjectsMemory {
    memory: Memory,
    /// The handles of the projects that have calls.
    projects: Mutex<HashMap<String, Memory>>,
}

/// The cause of a failed reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// The calls of the project use its share.
    Project,
    /// The calls of all projects use the memory of the node.
    Node,
}

/// Reserved memory, until it is dropped.
pub struct Reservation {
    all: OwnedSemaphorePermit,
    project: OwnedSemaphorePermit,
}

impl Memory {
    /// Creates the memory, and returns the handle of the first project.
    pub fn new(all_bytes: usize, project_bytes: usize) -> Self {
        Self { all: semaphore(all_bytes), project: semaphore(project_bytes), project_bytes }
    }

    /// Returns a handle for another project.
    pub fn of_project(&self) -> Self {
        Self { project: semaphore(self.project_bytes), ..self.clone() }
    }

    /// Returns whether this is the only handle of its project and no memory of the project is reserved.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.project) == 1
    }

    /// Waits until memory is available. If `bytes` exceeds the limit of a project, reserves all memory of the project.
    ///
    /// # Errors
    /// Returns an error only if the node is stopping.
    pub async fn reserve(&self, bytes: usize) -> Result<Reservation, AcquireError> {
        let units = self.units(bytes);
        let project = Arc::clone(&self.project).acquire_many_owned(units).await?;
        let all = Arc::clone(&self.all).acquire_many_owned(units).await?;
        Ok(Reservation { all, project })
    }

    /// Reserves memory without waiting.
    ///
    /// # Errors
    /// Returns an error if the memory is not available at the moment, or exceeds the limit of a project.
    pub fn try_reserve(&self, bytes: usize) -> Result<Reservation, TryAcquireError> {
        let units = units(bytes);
        let project = Arc::clone(&self.project).try_acquire_many_owned(units)?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(units)?;
        Ok(Reservation { all, project })
    }

    /// Returns the limit of a project.
    pub const fn project_bytes(&self) -> usize {
        self.project_bytes
    }

    fn units(&self, bytes: usize) -> u32 {
        units(bytes.min(self.project_bytes))
    }

    /// Returns whether the memory of all projects is exhausted for a reservation of this size.
    fn node_lacks(&self, bytes: usize) -> bool {
        self.all.available_permits() < self.units(bytes) as usize
    }
}

impl ProjectsMemory {
    /// Creates the memory with these limits on all projects and on each of them.
    pub fn new(all_bytes: usize, project_bytes: usize) -> Self {
        Self { memory: Memory::new(all_bytes, project_bytes), projects: Mutex::default() }
    }

    /// Waits until memory is available.
    ///
    /// # Errors
    /// Returns an error if other calls of the project or of the node use the memory for too long.
    pub async fn reserve(&self, project: &str, bytes: usize) -> Result<Reservation, Exhausted> {
        let memory = {
            let mut projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
            if !projects.contains_key(project) {
                projects.retain(|_, memory| !memory.is_unused());
            }
            projects.entry(project.to_owned()).or_insert_with(|| self.memory.of_project()).clone()
        };
        let reserved = timeout(WAIT_TIMEOUT, memory.reserve(bytes)).await;
        // If both are exhausted, the project may wait because of the node: its calls hold its share while they wait.
        reserved
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| if memory.node_lacks(bytes) { Exhausted::Node } else { Exhausted::Project })
    }
}

impl Reservation {
    /// Releases the memory that exceeds this number of bytes.
    pub fn shrink(&mut self, bytes: usize) {
        for permit in [&mut self.all, &mut self.project] {
            drop(permit.split(permit.num_permits().saturating_sub(units(bytes) as usize)));
        }
    }
}

fn semaphore(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(bytes / UNIT_BYTES))
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn projects_share_the_memory_of_the_node() {
        let first = Memory::new(512 << 20, 64 << 20);
        let reserve = |memory: &Memory| memory.reserve(usize::MAX).now_or_never().map(Result::unwrap);
        let mut held = reserve(&first).unwrap();
        assert!(reserve(&first).is_none(), "more than the limit of a project");
        let others: Vec<_> = (0..7).map(|_| reserve(&first.of_project()).unwrap()).collect();
        assert!(reserve(&first.of_project()).is_none(), "more than the limit of the node");
        held.shrink(1 << 20);
        assert!(reserve(&first).is_none(), "more than the rest");
        let small = first.reserve(63 << 20).now_or_never();
        assert!(small.is_some());
        drop(small);
        held.shrink(2 << 20);
        assert!(first.reserve((63 << 20) + 1).now_or_never().is_none(), "a reservation does not grow");
        drop(held);
        assert!(reserve(&first).is_some());
        drop(others);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_reservation_names_the_exhausted_memory() {
        let memory = ProjectsMemory::new(4 << 20, 2 << 20);
        let held = memory.reserve("prj_1", 2 << 20).await.unwrap();
        assert_eq!(memory.reserve("prj_1", 1 << 20).await.err(), Some(Exhausted::Project));
        let other = memory.reserve("prj_2", 2 << 20).await.unwrap();
        assert_eq!(memory.reserve("prj_3", 1 << 20).await.err(), Some(Exhausted::Node));
        drop((held, other));
        assert!(memory.reserve("prj_3", 1 << 20).await.is_ok());
    }
}
