//! The write limit of an organization, and of a user for writes outside of an organization. The writes of a tenant wait
//! for each other's locks, and each waiting write holds a connection. Without a limit, one tenant could exhaust the pool.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpRequest, web};
use kernel::audit::Actor;
use kernel::{Code, KeyedSemaphores};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::concurrency_limit::ConcurrencyLimit;
use super::guard::busy;
use super::tenant::Tenant;
use crate::problem::Problem;

/// The maximum number of concurrent writes of a tenant: a quarter of the usual pool size.
const MAX_WRITES_PER_TENANT: usize = 4;

/// The longest wait during an overload: about twice the p99 of a change at full load. While the server refuses requests,
/// those that wait longer use permits of the concurrency limit that others need, and the client gets a late response.
const OVERLOAD_ACQUIRE_TIMEOUT: Duration = Duration::from_millis(50);

/// The semaphores of tenants with writes in progress.
#[derive(Debug)]
pub(crate) struct WriteLimiter {
    tenants: KeyedSemaphores<Tenant>,
    /// The longest wait for a permit.
    acquire_timeout: Duration,
}

impl WriteLimiter {
    pub(crate) fn new(acquire_timeout: Duration) -> Self {
        Self { tenants: KeyedSemaphores::new(MAX_WRITES_PER_TENANT), acquire_timeout }
    }
}

/// A write permit.
#[derive(Debug)]
pub(super) struct WritePermit {
    permit: OwnedSemaphorePermit,
    /// The longest wait for another permit after [`without_write_permit`].
    acquire_timeout: Duration,
}

tokio::task_local! {
    /// The write permit of the request that the current task handles.
    static HELD: RefCell<Option<WritePermit>>;
}

/// Acquires a write permit of the organization in which the policy requires a role. If it requires none, acquires one of
/// the user. Reads and anonymous callers need no permit. Neither do uploads and requests that wait for a node: they
/// rarely hold a connection, and have separate limits.
pub(super) async fn acquire(
    request: &HttpRequest,
    actor: Option<&mut Actor>,
    is_long: bool,
) -> Result<Option<WritePermit>, Problem> {
    let tenant = actor.and_then(|actor| match actor.required_role {
        Some(role) => Some(Tenant::Org(role.org)),
        None => actor.user.map(Tenant::User),
    });
    let limiter = request.app_data::<web::Data<WriteLimiter>>();
    let Some((limiter, tenant)) = limiter.zip(tenant).filter(|_| !is_long && !request.method().is_safe()) else {
        return Ok(None);
    };
    // The internal listener has no concurrency limit.
    let limit = request.app_data::<web::Data<ConcurrencyLimit>>();
    let is_overloaded = || limit.is_some_and(|limit| limit.is_overloaded());
    let semaphore = limiter.tenants.of(tenant);
    let acquired = acquire_new(semaphore, limiter.acquire_timeout, is_overloaded).await?;
    let permit = acquired.ok_or_else(|| too_many_writes(tenant))?;
    Ok(Some(WritePermit { permit, acquire_timeout: limiter.acquire_timeout }))
}

/// Acquires a permit for a change that has not begun. During an overload, refuses it after a short wait. A change that
/// began to wait before the overload is refused when it gets its permit, so that the next ones get theirs in time.
/// Returns `None` if the wait ends without a permit and without an overload.
async fn acquire_new(
    semaphore: Arc<Semaphore>,
    acquire_timeout: Duration,
    is_overloaded: impl Fn() -> bool,
) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    let (started, was_overloaded) = (Instant::now(), is_overloaded());
    let timeout = if was_overloaded { OVERLOAD_ACQUIRE_TIMEOUT } else { acquire_timeout };
    let acquired = acquire_within(timeout, semaphore).await;
    if started.elapsed() >= OVERLOAD_ACQUIRE_TIMEOUT && (was_overloaded || is_overloaded()) {
        return Err(busy());
    }
    Ok(acquired)
}

fn too_many_writes(tenant: Tenant) -> Problem {
    let message = match tenant {
        Tenant::Org(_) => "too many concurrent changes to this organization; try again in a moment",
        Tenant::User(_) => "you have too many changes in progress; try again in a moment",
    };
    Problem::new(&Code::UNAVAILABLE, message)
}

async fn acquire_within(timeout: Duration, semaphore: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    tokio::time::timeout(timeout, semaphore.acquire_owned()).await.ok()?.ok()
}

/// Runs a handler with its write permit. The handler holds the permit except during [`without_write_permit`].
pub(super) async fn hold<F: Future>(permit: Option<WritePermit>, handler: F) -> F::Output {
    HELD.scope(RefCell::new(permit), handler).await
}

/// Runs `call`, which waits for an external system, without the write permit of the request. So a slow system does not
/// block other changes of the tenant. Returns `None` if no permit is free after the call; the caller must then
/// fail. Outside a request, or without a permit, just runs `call`.
pub async fn without_write_permit<F: Future>(call: F) -> Option<F::Output> {
    let held = HELD.try_with(RefCell::take).ok().flatten();
    let Some(WritePermit { permit, acquire_timeout }) = held else { return Some(call.await) };
    let semaphore = permit.semaphore().clone();
    drop(permit);
    let output = call.await;
    // The request has begun, so an overload does not shorten its wait.
    let permit = acquire_within(acquire_timeout, semaphore).await?;
    HELD.with(|held| held.replace(Some(WritePermit { permit, acquire_timeout })));
    Some(output)
}

/// Releases the write permit of the request and does not acquire it again, because its handler mostly waits for
/// external systems.
pub(crate) fn release_write_permit() {
    // Without a request or a permit there is nothing to release.
    let _ = HELD.try_with(RefCell::take);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::time::sleep;

    use super::*;
    use crate::config::MaxWaits;

    /// Acquires a permit that becomes free after this many milliseconds. Returns whether it was acquired, and whether the
    /// wait ended before the permit was free. `overload` states whether there is an overload in each half of the time.
    async fn wait(free_after: u64, overload: [bool; 2]) -> (bool, bool) {
        let (semaphore, is_overloaded) = (Arc::new(Semaphore::new(0)), AtomicBool::new(overload[0]));
        let (half, is_free) = (Duration::from_millis(free_after / 2), AtomicBool::new(false));
        let acquire = async {
            let acquire_timeout = MaxWaits::default().write_permit;
            let acquired =
                acquire_new(semaphore.clone(), acquire_timeout, || is_overloaded.load(Ordering::Relaxed)).await;
            (matches!(acquired, Ok(Some(_))), !is_free.load(Ordering::Relaxed))
        };
        let release = async {
            sleep(half).await;
            is_overloaded.store(overload[1], Ordering::Relaxed);
            sleep(half).await;
            is_free.store(true, Ordering::Relaxed);
            semaphore.add_permits(1);
        };
        tokio::join!(acquire, release).0
    }

    #[tokio::test(start_paused = true)]
    async fn wait_is_short_only_during_an_overload() {
        let [acquired, refused_early, refused_late] = [(true, false), (false, true), (false, false)];
        for (free_after, overload, expected) in [
            (200, [false, false], acquired),
            (700, [false, false], acquired),
            (800, [false, false], refused_early),
            (40, [true, true], acquired),
            (200, [true, true], refused_early),
            // The overload begins during the wait.
            (40, [false, true], acquired),
            (200, [false, true], refused_late),
            (200, [true, false], refused_early),
        ] {
            assert_eq!(wait(free_after, overload).await, expected, "{free_after} {overload:?}");
        }
    }
}
