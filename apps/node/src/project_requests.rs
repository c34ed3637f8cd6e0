//! Limits on the requests to the control plane that the code of a project causes.
//!
//! All projects of all nodes share the control plane. So a project has few requests in flight, and a refusal that
//! applies to every request of the project is repeated for a moment without a request. It is repeated only for requests
//! with the same scope. The scope of an AI call is its model: the control plane refuses a call of an unknown model for
//! that reason, whatever else applies to the project. All mails have the same scope.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use semaphores::KeyedSemaphores;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

/// The largest number of requests of a project in flight.
const MAX_IN_FLIGHT: usize = 4;
/// The longest wait for one of these requests to end.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a refusal is repeated if it does not state when to retry.
const DEFAULT_REPEAT: Duration = Duration::from_secs(1);
/// How long a refusal is repeated at most. So a change, such as more credit, has an effect within this time.
const MAX_REPEAT: Duration = Duration::from_secs(5);

/// The requests of all projects of one kind, with scopes `S`. The control plane may answer them with the refusal `R`.
pub struct ProjectRequests<S, R> {
    in_flight: KeyedSemaphores<String>,
    /// By project and scope.
    refusals: Mutex<HashMap<(String, S), RecentRefusal<R>>>,
}

struct RecentRefusal<R> {
    refusal: R,
    until: Instant,
}

/// Why a request must not be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum NotSent<R> {
    /// The control plane refused a request of the project with this scope a moment ago.
    Refused(R),
    /// The other requests of the project take too long.
    Busy,
}

impl<S: Eq + Hash, R: Clone> ProjectRequests<S, R> {
    pub fn new() -> Self {
        Self { in_flight: KeyedSemaphores::new(MAX_IN_FLIGHT), refusals: Mutex::default() }
    }

    /// Waits until the project may send another request. The request is in flight until the permit is dropped.
    ///
    /// # Errors
    /// Returns an error if the request must not be sent.
    pub async fn begin(&self, project: &str, scope: S) -> Result<OwnedSemaphorePermit, NotSent<R>> {
        let permit = self.in_flight.of(project.to_owned()).acquire_owned();
        let permit = timeout(WAIT_TIMEOUT, permit).await.ok().and_then(Result::ok).ok_or(NotSent::Busy)?;
        // Check after the wait, in which another request may have been refused.
        match self.recent_refusal(project, scope) {
            Some(refusal) => Err(NotSent::Refused(refusal)),
            None => Ok(permit),
        }
    }

    /// Repeats a refusal for requests of the project with this scope, until `retry_after` seconds have passed.
    pub fn repeat(&self, project: &str, scope: S, refusal: R, retry_after: Option<u32>) {
        let duration =
            retry_after.map_or(DEFAULT_REPEAT, |seconds| Duration::from_secs(seconds.into()).min(MAX_REPEAT));
        let now = Instant::now();
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.retain(|_, recent| recent.until > now);
        refusals.insert((project.to_owned(), scope), RecentRefusal { refusal, until: now + duration });
    }

    fn recent_refusal(&self, project: &str, scope: S) -> Option<R> {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = refusals.get(&(project.to_owned(), scope)).filter(|recent| recent.until > Instant::now())?;
        Some(recent.refusal.clone())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn project_has_few_requests_in_flight() {
        let requests = ProjectRequests::<_, ()>::new();
        let mut held = Vec::new();
        for _ in 0..MAX_IN_FLIGHT {
            held.push(requests.begin("prj_1", "m").await.unwrap());
        }
        assert_eq!(requests.begin("prj_1", "m").await.unwrap_err(), NotSent::Busy);
        assert!(requests.begin("prj_2", "m").await.is_ok());
        let (next, ()) = tokio::join!(requests.begin("prj_1", "m"), async { drop(held) });
        assert!(next.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_is_repeated_for_a_moment() {
        let requests = ProjectRequests::new();
        for (retry_after, duration) in [(None, 1), (Some(3), 3), (Some(60), 5)] {
            requests.repeat("prj_1", "m", "no credit", retry_after);
            advance(Duration::from_secs(duration) - Duration::from_millis(1)).await;
            assert_eq!(requests.begin("prj_1", "m").await.unwrap_err(), NotSent::Refused("no credit"));
            assert!(requests.begin("prj_2", "m").await.is_ok());
            assert!(requests.begin("prj_1", "other").await.is_ok());
            advance(Duration::from_millis(1)).await;
            assert!(requests.begin("prj_1", "m").await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_are_refused_too() {
        let requests = ProjectRequests::new();
        let mut held = Vec::new();
        for _ in 0..MAX_IN_FLIGHT {
            held.push(requests.begin("prj_1", "m").await.unwrap());
        }
        let refuse = async {
            requests.repeat("prj_1", "m", "no credit", None);
            drop(held);
        };
        let (waiting, ()) = tokio::join!(requests.begin("prj_1", "m"), refuse);
        assert_eq!(waiting.unwrap_err(), NotSent::Refused("no credit"));
    }
}
