//! The memory of large bodies, which are read as a whole.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{CONTENT_LENGTH, HeaderMap};
use actix_web::{HttpRequest, web};
use kernel::audit::Actor;
use kernel::{Code, KeyedSemaphores, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::read::DEFAULT_LIMIT;
use crate::http::guard;
use crate::http::operation::Limits;
use crate::problem::Problem;

/// On the internal listener, only routes with a larger limit reserve memory, because nodes have no shares.
const MAX_UNRESERVED: usize = 1 << 20;

/// The memory of a request, as a multiple of the length of its body: the bytes, the parsed values, and the handler's
/// copies.
const COPIES: usize = 4;

const UNIT_BYTES: usize = 1 << 10;

/// The longest wait for the memory that other requests use.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The memory of the large bodies of a listener.
#[derive(Debug)]
pub struct BodyMemory {
    /// Only routes with a larger limit reserve memory.
    unreserved: usize,
    total: Arc<Semaphore>,
    /// The shares of the users, and that of all callers without a user.
    shares: KeyedSemaphores<Option<UserId>>,
}

impl BodyMemory {
    /// Creates the memory of the public listener with its size. A user gets a quarter of it. All callers without a user
    /// also get a quarter together.
    #[must_use]
    pub fn public(bytes: usize) -> Self {
        Self::new(bytes, bytes / 4, DEFAULT_LIMIT)
    }

    /// Creates the memory of the internal listener with its size. Nodes have no shares.
    #[must_use]
    pub fn internal(bytes: usize) -> Self {
        Self::new(bytes, bytes, MAX_UNRESERVED)
    }

    fn new(bytes: usize, share: usize, unreserved: usize) -> Self {
        let total = Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Self { unreserved, total, shares: KeyedSemaphores::new(share / UNIT_BYTES) }
    }

    /// Waits for the memory of a body. Requests get it in the order of their calls, so large bodies cannot be starved.
    async fn reserve(&self, bytes: usize, user: Option<UserId>) -> Option<Vec<OwnedSemaphorePermit>> {
        let units = u32::try_from((bytes * COPIES).div_ceil(UNIT_BYTES)).ok()?;
        let acquire = async {
            let share = self.shares.of(user).acquire_many_owned(units).await.ok()?;
            Some(vec![share, Arc::clone(&self.total).acquire_many_owned(units).await.ok()?])
        };
        timeout(WAIT_TIMEOUT, acquire).await.ok()?
    }
}

/// Returns the length in bytes that a request declares for its body.
pub(crate) fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reserves memory for a body above [`DEFAULT_LIMIT`], until the permits are dropped. The request holds no permit of the
/// concurrency limit while it waits.
///
/// # Errors
/// Returns 413 for a declared length above the limit, and 503 if other requests use the memory for too long.
pub(in crate::http) async fn reserve_memory(
    request: &HttpRequest,
    actor: Option<&mut Actor>,
    limits: Limits,
) -> Result<Vec<OwnedSemaphorePermit>, Problem> {
    // Uploads have separate limits.
    let limit = limits.body.filter(|limit| *limit > DEFAULT_LIMIT && limits.upload.is_none());
    let Some(limit) = limit else { return Ok(Vec::new()) };
    let memory = request.app_data::<web::Data<BodyMemory>>();
    let memory = memory.ok_or_else(|| Problem::internal("the app data contains no memory of bodies"))?;
    if limit <= memory.unreserved {
        return Ok(Vec::new());
    }
    let length = declared_length(request.headers()).unwrap_or(limit);
    if length > limit {
        return Err(Problem::too_large(limit as u64));
    }
    if length <= DEFAULT_LIMIT {
        return Ok(Vec::new());
    }
    guard::release_permit(request);
    let busy = || Problem::new(&Code::UNAVAILABLE, "too many large requests; try again in a moment");
    let user = actor.and_then(|actor| actor.user);
    let reserved = memory.reserve(length, user).await.ok_or_else(busy)?;
    guard::require_permit(request)?;
    Ok(reserved)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use kernel::ClockRng;

    use super::*;

    const LIMIT: usize = 16 << 20;

    /// Reserves the memory of a request with this declared length, on a route with this limit.
    async fn reserve(
        memory: &web::Data<BodyMemory>,
        actor: Option<&mut Actor>,
        limit: usize,
        length: Option<usize>,
    ) -> Result<Vec<OwnedSemaphorePermit>, Problem> {
        let request = TestRequest::default().app_data(memory.clone());
        let request = match length {
            Some(length) => request.insert_header((CONTENT_LENGTH, length)),
            None => request,
        };
        let limits = Limits { long: false, waits_for_node: false, body: Some(limit), upload: None };
        reserve_memory(&request.to_http_request(), actor, limits).await
    }

    #[actix_web::test]
    async fn requests_share_the_memory_until_they_end() {
        tokio::time::pause();
        let memory = web::Data::new(BodyMemory::internal(128 << 20));
        let _half = reserve(&memory, None, LIMIT, Some(LIMIT)).await.expect("half of the memory");
        // Without a declared length, the limit counts.
        let undeclared = reserve(&memory, None, LIMIT, None).await.expect("the other half");
        let small = Some(DEFAULT_LIMIT + 1);
        let refused = reserve(&memory, None, LIMIT, small).await.expect_err("no memory is left");
        assert_eq!(refused.code().name, "unavailable");
        drop(undeclared);
        reserve(&memory, None, LIMIT, small).await.expect("memory");
    }

    #[actix_web::test]
    async fn user_and_all_anonymous_callers_get_a_quarter_of_the_memory() {
        const LARGE: usize = 1 << 20;
        tokio::time::pause();
        let memory = web::Data::new(BodyMemory::public(64 << 20));
        let user = || Some(testkit::session_actor(ClockRng::system().id()));
        for (mut caller, mut other) in [(user(), user()), (None, user())] {
            let mut reserved = Vec::new();
            for _ in 0..4 {
                reserved.push(reserve(&memory, caller.as_mut(), LARGE, None).await.expect("memory"));
            }
            let refused = reserve(&memory, caller.as_mut(), LARGE, None).await.expect_err("no memory is left");
            assert_eq!(refused.code().name, "unavailable");
            reserve(&memory, other.as_mut(), LARGE, None).await.expect("memory of another user");
            reserve(&memory, caller.as_mut(), LARGE, Some(DEFAULT_LIMIT)).await.expect("no reservation");
            reserved.pop();
            reserve(&memory, caller.as_mut(), LARGE, None).await.expect("memory");
        }
    }

    #[actix_web::test]
    async fn small_limits_of_nodes_need_no_memory_and_long_bodies_are_refused() {
        let memory = web::Data::new(BodyMemory::internal(0));
        reserve(&memory, None, MAX_UNRESERVED, None).await.expect("no reservation");
        let refused = reserve(&memory, None, LIMIT, Some(LIMIT + 1)).await.expect_err("too large");
        assert_eq!(refused.code().name, "payload_too_large");
    }
}
