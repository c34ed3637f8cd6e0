//! Requests that wait for a node, up to ten minutes. A waiting request needs no connection, so it holds neither a
//! permit of the concurrency limit nor a write permit of its organization. It has a separate limit instead.

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use kernel::audit::Actor;
use kernel::{Code, KeyedSemaphores, OrgId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use super::operation::Limits;
use super::{Describe, Extract, Operation, guard};
use crate::problem::Problem;

/// The maximum number of waiting requests of an organization.
const MAX_WAITS_PER_ORG: usize = 8;

/// The maximum number of waiting requests of all callers.
const MAX_WAITS: usize = 128;

/// The time that waiting requests have to finish during a graceful shutdown. It is shorter than the time that the
/// listener waits, so that the client receives a response.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(20);

/// States that the handler waits for a node. Such a request has the timeout of a long request.
#[derive(Debug)]
pub struct NodeWait;

impl Describe for NodeWait {
    fn describe(operation: &mut Operation) {
        operation.wait_for_node();
    }
}

impl Extract for NodeWait {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        guard::release_permit(request);
        Ok(Self)
    }
}

/// The permits of the waiting requests of this process.
#[derive(Debug)]
pub struct NodeWaitLimiter {
    total: Arc<Semaphore>,
    orgs: KeyedSemaphores<OrgId>,
}

impl Default for NodeWaitLimiter {
    fn default() -> Self {
        Self { total: Arc::new(Semaphore::new(MAX_WAITS)), orgs: KeyedSemaphores::new(MAX_WAITS_PER_ORG) }
    }
}

/// Acquires the permits of a request that waits for a node. Other requests need none.
///
/// # Errors
/// Returns 429 above the limit of the organization, 503 above the limit of all callers.
pub(super) fn acquire(
    request: &HttpRequest,
    actor: Option<&mut Actor>,
    limits: Limits,
) -> Result<Vec<OwnedSemaphorePermit>, Problem> {
    if !limits.waits_for_node {
        return Ok(Vec::new());
    }
    let limiter = request.app_data::<web::Data<NodeWaitLimiter>>();
    let limiter = limiter.ok_or_else(|| Problem::internal("the app data contains no limiter of waiting requests"))?;
    let mut permits = Vec::new();
    if let Some(role) = actor.and_then(|actor| actor.required_role) {
        let permit = limiter.orgs.of(role.org).try_acquire_owned();
        permits.push(permit.map_err(|_| above_org_limit())?);
    }
    permits.push(
        limiter
            .total
            .clone()
            .try_acquire_owned()
            .map_err(|_| Problem::new(&Code::UNAVAILABLE, "too many requests wait for nodes; try again in a moment"))?,
    );
    Ok(permits)
}

fn above_org_limit() -> Problem {
    let message = format!(
        "{MAX_WAITS_PER_ORG} requests of the organization wait for nodes, the maximum; retry when one of them has finished"
    );
    Problem::above_limit(message, MAX_WAITS_PER_ORG, "organization")
}

/// The graceful shutdown of the process, with the time at which it began. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(Arc<watch::Sender<Option<Instant>>>);

impl Shutdown {
    /// Begins the shutdown. Each connection is closed after its next response. Requests that wait for a node end with
    /// 503 after 20 seconds at the latest.
    pub fn begin(&self) {
        self.0.send_replace(Some(Instant::now()));
    }

    /// Returns whether the shutdown has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Completes when waiting requests must end.
    async fn deadline(&self) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let begun = self.0.subscribe().wait_for(Option::is_some).await.ok().and_then(|begun| *begun);
        if let Some(begun) = begun {
            sleep_until(begun + SHUTDOWN_GRACE).await;
        }
    }
}

/// Completes when this request must end because of a shutdown. Never completes for a request that does not wait for a
/// node.
pub(super) async fn shutdown_deadline(request: &HttpRequest, limits: Limits) {
    match request.app_data::<web::Data<Shutdown>>().filter(|_| limits.waits_for_node) {
        Some(shutdown) => shutdown.deadline().await,
        None => std::future::pending().await,
    }
}
