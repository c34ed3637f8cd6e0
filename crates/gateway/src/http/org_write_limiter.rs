//! The write limit of an organization. Its writes wait for each other's row locks, and each waiting write holds a
//! connection. Without a limit, one organization could exhaust the pool.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use actix_web::http::Method;
use actix_web::{HttpRequest, web};
use kernel::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RouteMatch;
use crate::problem::Problem;

/// The limit of concurrent writes of an organization: a quarter of the usual pool size.
const MAX_WRITES_PER_ORG: usize = 4;

/// The longest wait for a permit. Together with the waits for a connection and a lock it stays below three seconds.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(750);

/// The semaphores of organizations with writes in progress, by slug.
#[derive(Debug, Default)]
pub(crate) struct OrgWriteLimiter(Mutex<HashMap<String, Weak<Semaphore>>>);

impl OrgWriteLimiter {
    fn of(&self, org: &str) -> Arc<Semaphore> {
        let mut semaphores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = semaphores.get(org).and_then(Weak::upgrade) {
            return semaphore;
        }
        semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(MAX_WRITES_PER_ORG));
        semaphores.insert(org.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}

/// Acquires a write permit of the path's organization, if the request writes to one. Uploads need none: they rarely
/// hold a connection, and have a separate limit.
pub(super) async fn acquire(request: &HttpRequest, is_upload: bool) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    let matched = RouteMatch::of(request);
    let org = matched.as_ref().and_then(|matched| matched.get("orgSlug"));
    let limiter = request.app_data::<web::Data<OrgWriteLimiter>>();
    let Some((limiter, org)) = limiter.zip(org).filter(|_| !is_upload && request.method() != Method::GET) else {
        return Ok(None);
    };
    let semaphore = limiter.of(org);
    match tokio::time::timeout(ACQUIRE_TIMEOUT, semaphore.acquire_owned()).await {
        Ok(Ok(permit)) => Ok(Some(permit)),
        _ => Err(Problem::new(
            &Code::UNAVAILABLE,
            "too many concurrent changes to this organization; try again in a moment",
        )),
    }
}
