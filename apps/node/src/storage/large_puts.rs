//! Permits for puts of large objects. Each such put buffers a part of its object.

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

/// The largest number of projects that may put their first large object at the same time.
const MAX_FIRST: usize = 32;
/// The largest number of further large objects that all projects together may put at the same time.
const MAX_FURTHER: usize = 32;
/// The largest number of large objects that a project may put at the same time.
const MAX_PER_PROJECT: usize = 8;

/// The permits of all projects. The first put of a project does not wait for further puts of other projects, so a few
/// projects cannot delay all others.
pub struct LargePuts {
    first: Semaphore,
    further: Semaphore,
}

/// The permits of a project.
pub struct ProjectLargePuts {
    all: Semaphore,
    first: Semaphore,
}

/// The permits of a put, until they are dropped.
pub struct LargePut<'a> {
    _project: SemaphorePermit<'a>,
    _first: Option<SemaphorePermit<'a>>,
    _shared: SemaphorePermit<'a>,
}

impl Default for LargePuts {
    fn default() -> Self {
        Self { first: Semaphore::new(MAX_FIRST), further: Semaphore::new(MAX_FURTHER) }
    }
}

impl Default for ProjectLargePuts {
    fn default() -> Self {
        Self { all: Semaphore::new(MAX_PER_PROJECT), first: Semaphore::new(1) }
    }
}

impl LargePuts {
    /// Waits until a project may put another large object.
    ///
    /// # Errors
    /// Never returns an error, because the semaphores are not closed.
    pub async fn begin<'a>(&'a self, project: &'a ProjectLargePuts) -> Result<LargePut<'a>, AcquireError> {
        // The permit of the project is acquired first, so that the waiting puts of a project do not block those of
        // others.
        let all = project.all.acquire().await?;
        let first = project.first.try_acquire().ok();
        let shared = if first.is_some() { &self.first } else { &self.further };
        Ok(LargePut { _project: all, _first: first, _shared: shared.acquire().await? })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn first_put_of_a_project_does_not_wait_for_many_of_others() {
        let puts = LargePuts::default();
        let greedy: Vec<_> = (0..5).map(|_| ProjectLargePuts::default()).collect();
        let begun: Vec<_> = greedy
            .iter()
            .flat_map(|project| {
                (0..2 * MAX_PER_PROJECT).map(|_| puts.begin(project).now_or_never()).collect::<Vec<_>>()
            })
            .flatten()
            .collect();
        // Each of the five projects has its first put. Together, they also have all permits for further puts.
        assert_eq!(begun.len(), greedy.len() + MAX_FURTHER);
        let others: Vec<_> = (0..MAX_FIRST).map(|_| ProjectLargePuts::default()).collect();
        let firsts: Vec<_> = others.iter().filter_map(|project| puts.begin(project).now_or_never()).collect();
        assert_eq!(firsts.len(), MAX_FIRST - greedy.len());
        assert!(puts.begin(&others[0]).now_or_never().is_none());
        drop(begun);
        assert!(puts.begin(&others[0]).now_or_never().is_some());
    }
}
