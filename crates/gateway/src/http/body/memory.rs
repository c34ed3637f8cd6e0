//! The memory of large bodies, which are read as a whole.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{CONTENT_LENGTH, HeaderMap};
use actix_web::{HttpMessage as _, HttpRequest, web};
use kernel::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::http::guard;
use crate::problem::Problem;

/// Bodies of routes with a larger limit reserve memory.
const MAX_UNRESERVED: usize = 1 << 20;

/// The memory of all large bodies, in bytes.
const MAX_BYTES: usize = 128 << 20;

/// The memory of a request, as a multiple of the length of its body: the bytes, the parsed values, and the handler's
/// copies.
const COPIES: usize = 4;

const UNIT_BYTES: usize = 1 << 10;

/// The longest wait for the memory that other requests use.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The memory of the large bodies of this process.
#[derive(Debug)]
pub struct BodyMemory(Arc<Semaphore>);

/// Reserved memory, which a request holds until it ends.
struct Reservation(#[expect(dead_code, reason = "released when the request ends")] OwnedSemaphorePermit);

impl Default for BodyMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BYTES / UNIT_BYTES)))
    }
}

impl BodyMemory {
    /// Waits for the memory of a body. Requests get it in the order of their calls, so large bodies cannot be starved.
    async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from((bytes * COPIES).div_ceil(UNIT_BYTES)).ok()?;
        timeout(WAIT_TIMEOUT, Arc::clone(&self.0).acquire_many_owned(units)).await.ok()?.ok()
    }
}

/// Returns the length in bytes that a request declares for its body.
pub(crate) fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reserves memory for a body of at most `limit` bytes, if the limit is large. The request holds no permit of the
/// concurrency limit while it waits.
///
/// # Errors
/// Returns 413 for a declared length above the limit, and 503 if other requests use the memory for too long.
pub(super) async fn reserve(request: &HttpRequest, limit: usize) -> Result<(), Problem> {
    if limit <= MAX_UNRESERVED {
        return Ok(());
    }
    let length = declared_length(request.headers()).unwrap_or(limit);
    if length > limit {
        return Err(Problem::too_large(limit as u64));
    }
    let memory = request.app_data::<web::Data<BodyMemory>>();
    let memory = memory.ok_or_else(|| Problem::internal("the app data contains no memory of bodies"))?;
    guard::release_permit(request);
    let busy = || Problem::new(&Code::UNAVAILABLE, "too many large requests; try again in a moment");
    let reserved = memory.reserve(length).await.ok_or_else(busy)?;
    guard::require_permit(request)?;
    request.extensions_mut().insert(Reservation(reserved));
    Ok(())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    const LIMIT: usize = 16 << 20;

    fn request(memory: &web::Data<BodyMemory>, length: Option<usize>) -> HttpRequest {
        let request = TestRequest::default().app_data(memory.clone());
        let request = match length {
            Some(length) => request.insert_header((CONTENT_LENGTH, length)),
            None => request,
        };
        request.to_http_request()
    }

    #[actix_web::test]
    async fn requests_share_the_memory_until_they_end() {
        tokio::time::pause();
        let memory = web::Data::new(BodyMemory::default());
        let full = request(&memory, Some(LIMIT));
        reserve(&full, LIMIT).await.expect("half of the memory");
        // Without a declared length, the limit counts.
        let undeclared = request(&memory, None);
        reserve(&undeclared, LIMIT).await.expect("the other half");
        let small = request(&memory, Some(1));
        let refused = reserve(&small, LIMIT).await.expect_err("no memory is left");
        assert_eq!(refused.code().name, "unavailable");
        drop(undeclared);
        reserve(&small, LIMIT).await.expect("memory");
    }

    #[actix_web::test]
    async fn small_limits_need_no_memory_and_long_bodies_are_refused() {
        let memory = web::Data::new(BodyMemory(Arc::new(Semaphore::new(0))));
        reserve(&request(&memory, None), MAX_UNRESERVED).await.expect("no reservation");
        let refused = reserve(&request(&memory, Some(LIMIT + 1)), LIMIT).await.expect_err("too large");
        assert_eq!(refused.code().name, "payload_too_large");
    }
}
