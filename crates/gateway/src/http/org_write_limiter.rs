//! The write limit of an organization. The writes of an organization wait for each other's row locks, and each waiting
//! write holds a connection. Without a limit, one organization could exhaust the pool.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpRequest, web};
use kernel::audit::Actor;
use kernel::{Code, KeyedSemaphores, OrgId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// The maximum number of concurrent writes of an organization: a quarter of the usual pool size.
const MAX_WRITES_PER_ORG: usize = 4;

/// The longest wait for a permit. The sum of this wait and the waits for a connection and a lock is less than three
/// seconds.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(750);

/// The semaphores of organizations with writes in progress.
#[derive(Debug)]
pub(crate) struct OrgWriteLimiter(KeyedSemaphores<OrgId>);

impl Default for OrgWriteLimiter {
    fn default() -> Self {
        Self(KeyedSemaphores::new(MAX_WRITES_PER_ORG))
    }
}

tokio::task_local! {
    /// The write permit of the request that the current task handles.
    static HELD: RefCell<Option<OwnedSemaphorePermit>>;
}

/// Acquires a write permit of the organization in which the policy requires a role. Requests that do not write to an
/// organization need no permit. Uploads and requests that wait for a node need none either: they rarely hold a
/// connection, and have their own limits.
pub(super) async fn acquire(
    request: &HttpRequest,
    actor: Option<&mut Actor>,
    is_long: bool,
) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    let org = actor.and_then(|actor| actor.required_role).map(|role| role.org);
    let limiter = request.app_data::<web::Data<OrgWriteLimiter>>();
    let Some((limiter, org)) = limiter.zip(org).filter(|_| !is_long && !request.method().is_safe()) else {
        return Ok(None);
    };
    acquire_from(limiter.0.of(org)).await.map(Some)
}

async fn acquire_from(semaphore: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    match tokio::time::timeout(ACQUIRE_TIMEOUT, semaphore.acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(Problem::new(
            &Code::UNAVAILABLE,
            "too many concurrent changes to this organization; try again in a moment",
        )),
    }
}

/// Runs a handler with its write permit. The handler holds the permit except during [`without_write_permit`].
pub(super) async fn hold<F: Future>(permit: Option<OwnedSemaphorePermit>, handler: F) -> F::Output {
    HELD.scope(RefCell::new(permit), handler).await
}

/// Runs `call`, which waits for an external system, without the write permit of the request. So a slow system does not
/// block other changes of the organization. Returns `None` if no permit is free after the call; the caller must then
/// fail. Outside a request, or without a permit, just runs `call`.
pub async fn without_write_permit<F: Future>(call: F) -> Option<F::Output> {
    let Some(permit) = HELD.try_with(RefCell::take).ok().flatten() else { return Some(call.await) };
    let semaphore = permit.semaphore().clone();
    drop(permit);
    let output = call.await;
    let permit = acquire_from(semaphore).await.ok()?;
    HELD.with(|held| held.replace(Some(permit)));
    Some(output)
}

/// Releases the write permit of the request and does not acquire it again, because its handler mostly waits for
/// external systems.
pub(crate) fn release_write_permit() {
    // Without a request or a permit there is nothing to release.
    let _ = HELD.try_with(RefCell::take);
}
