//! Limits on the memory of large arguments and rows, for each project and for all projects of the node.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Smaller arguments and rows are not counted: the number of calls in flight limits them.
pub const SMALL_BYTES: usize = 64 << 10;

const UNIT_BYTES: usize = 1 << 10;
const ALL_PROJECTS_BYTES: usize = 512 << 20;
const PROJECT_BYTES: usize = 64 << 20;

/// The memory that calls may use for one purpose. A holder of a reservation waits only for memory of later purposes, so
/// calls cannot wait for each other.
#[derive(Clone)]
pub struct Memory {
    all: Arc<Semaphore>,
    project: Arc<Semaphore>,
}

/// Reserved memory, until it is dropped.
pub struct Reservation {
    _all: OwnedSemaphorePermit,
    _project: OwnedSemaphorePermit,
}

impl Memory {
    /// The memory of all projects.
    pub fn new() -> Self {
        let semaphore = |bytes| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Self { all: semaphore(ALL_PROJECTS_BYTES), project: semaphore(PROJECT_BYTES) }
    }

    /// The memory of another project.
    pub fn of_project(&self) -> Self {
        Self { all: Arc::clone(&self.all), ..Self::new() }
    }

    /// Waits until memory is available. A size above the limit of a project takes all of it.
    ///
    /// # Errors
    /// Only if the node is stopping.
    pub async fn reserve(&self, bytes: usize) -> Result<Reservation, AcquireError> {
        let units = u32::try_from(bytes.min(PROJECT_BYTES).div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let project = Arc::clone(&self.project).acquire_many_owned(units).await?;
        let all = Arc::clone(&self.all).acquire_many_owned(units).await?;
        Ok(Reservation { _all: all, _project: project })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn projects_share_the_memory_of_the_node() {
        let first = Memory::new();
        let reserve = |memory: &Memory| memory.reserve(usize::MAX).now_or_never().map(Result::unwrap);
        let held = reserve(&first).unwrap();
        assert!(reserve(&first).is_none(), "more than the limit of a project");
        let others: Vec<_> = (0..7).map(|_| reserve(&first.of_project()).unwrap()).collect();
        assert!(reserve(&first.of_project()).is_none(), "more than the limit of the node");
        drop(held);
        assert!(reserve(&first).is_some());
        drop(others);
    }
}
