//! An async function as a route. Its arguments are extracted in order. The policy is the first one, so that a caller
//! without permission learns nothing about the expected request.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::FutureExt as _;
use kernel::Code;

use super::body::reserve_memory;
use super::extract::{Extract, IntoResponse, Policy};
use super::idempotency::{self, IdempotencyCheck};
use super::operation::Limits;
use super::{Operation, node_wait, upload_limiter, write_limiter};
use crate::problem::Problem;

/// The timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of uploads, long polls and waits for a node.
pub(crate) const LONG_REQUEST_TIMEOUT: Duration = Duration::from_secs(900);

/// A handler function of a route.
pub trait Endpoint<Arguments>: Clone + Send + Sync + 'static {
    /// Describes the route.
    fn describe(operation: &mut Operation);

    /// Handles a request.
    async fn handle(&self, request: &HttpRequest, payload: Payload, limits: Limits) -> Result<HttpResponse, Problem>;
}

/// Runs a handler. A panic, a timeout and an error all become a rendered problem.
pub(crate) async fn run<A, E: Endpoint<A>>(
    endpoint: E,
    limits: Limits,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let timeout = if limits.long { LONG_REQUEST_TIMEOUT } else { REQUEST_TIMEOUT };
    let handling = AssertUnwindSafe(endpoint.handle(&request, payload, limits)).catch_unwind();
    let problem = tokio::select! {
        handled = tokio::time::timeout(timeout, handling) => match handled {
            Ok(Ok(Ok(response))) => return response,
            Ok(Ok(Err(problem))) => problem,
            Ok(Err(panic)) => Problem::internal(format!("panicked: {}", panic_message(&*panic))),
            Err(_) => Problem::new(&Code::UNAVAILABLE, "the request timed out; try again in a moment"),
        },
        () = node_wait::shutdown_deadline(&request, limits) => {
            Problem::new(&Code::UNAVAILABLE, "the server shuts down; check the result, and try again")
        }
    };
    problem.respond(&request)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

macro_rules! endpoint {
    ($($argument:ident $value:ident),*) => {
        impl<F, Fut, R, P, $($argument),*> Endpoint<(P, $($argument,)*)> for F
        where
            F: Fn(P, $($argument),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = Result<R, Problem>>,
            R: IntoResponse,
            P: Policy,
            $($argument: Extract),*
        {
            fn describe(operation: &mut Operation) {
                P::describe(operation);
                $($argument::describe(operation);)*
                R::describe(operation);
            }

            async fn handle(
                &self,
                request: &HttpRequest,
                mut payload: Payload,
                limits: Limits,
            ) -> Result<HttpResponse, Problem> {
                let mut policy = P::extract(request, &mut payload).await?;
                let _upload = upload_limiter::acquire(request, policy.actor(), limits)?;
                let _wait = node_wait::acquire(request, policy.actor(), limits)?;
                let _memory = reserve_memory(request, policy.actor(), limits).await?;
                let idempotent_request = match idempotency::check(request, &mut payload, &mut policy, limits).await? {
                    IdempotencyCheck::Execute(request) => request,
                    IdempotencyCheck::Replay(response) => return Ok(response),
                };
                let outcome = async {
                    $(let $value = $argument::extract(request, &mut payload).await?;)*
                    let permit = write_limiter::acquire(request, policy.actor(), limits.long).await?;
                    Ok(write_limiter::hold(permit, self(policy, $($value),*)).await?.into_response())
                };
                idempotent_request.finish(request, outcome.await).await
            }
        }
    };
}

endpoint!();
endpoint!(A a);
endpoint!(A a, B b);
endpoint!(A a, B b, C c);
endpoint!(A a, B b, C c, D d);
