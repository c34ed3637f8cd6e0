//! The limits on concurrent password verifications.

use std::sync::Arc;
use std::time::Duration;

use semaphores::KeyedSemaphores;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Each verification takes 19 MiB and a core for about 25 ms.
const MAX_CONCURRENT: usize = 2;

/// The timeout of waiting for a permit.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The permits for verifications. A project has only one, so at most one of its verifications waits for the permits of
/// all projects. These are granted in order, so the projects take turns.
pub struct Verifications {
    projects: KeyedSemaphores<String>,
    node: Arc<Semaphore>,
}

/// Admits a verification until it is dropped.
pub struct VerificationPermit {
    _project: OwnedSemaphorePermit,
    _node: OwnedSemaphorePermit,
}

impl Verifications {
    pub fn new() -> Self {
        Self { projects: KeyedSemaphores::new(1), node: Arc::new(Semaphore::new(MAX_CONCURRENT)) }
    }

    /// Waits for a permit. Returns `None` if too many others wait.
    pub async fn permit(&self, project: &str) -> Option<VerificationPermit> {
        let permit = async {
            let project = self.projects.of(project.to_owned()).acquire_owned().await?;
            let node = Arc::clone(&self.node).acquire_owned().await?;
            Ok::<_, AcquireError>(VerificationPermit { _project: project, _node: node })
        };
        timeout(TIMEOUT, permit).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn project_cannot_use_all_permits() {
        let verifications = Verifications::new();
        let one = verifications.permit("one").await.unwrap();
        assert!(verifications.permit("one").await.is_none());
        let two = verifications.permit("two").await.unwrap();
        assert!(verifications.permit("three").await.is_none());
        drop(one);
        assert!(verifications.permit("three").await.is_some());
        drop(two);
    }
}
