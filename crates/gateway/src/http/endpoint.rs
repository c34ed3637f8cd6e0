//! An async function as a route. Its arguments are extracted in order, the policy first, so that a caller without
//! permission learns nothing about the shape of the request.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::FutureExt as _;
use kernel::Code;

use super::extract::{Extract, Policy, Reply};
use super::once::{self, Begin};
use super::operation::Limits;
use super::{Operation, lane};
use crate::problem::Problem;

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of a request that carries a file or waits for a change.
const LONG_TIMEOUT: Duration = Duration::from_secs(900);

/// A handler that can be a route.
pub trait Endpoint<Arguments>: Clone + Send + Sync + 'static {
    /// Describes the route.
    fn describe(operation: &mut Operation);

    /// Handles a request.
    async fn answer(&self, request: &HttpRequest, payload: Payload, limits: Limits) -> Result<HttpResponse, Problem>;
}

/// Runs a handler. A panic, a timeout and an error all become a rendered problem.
pub(crate) async fn run<A, E: Endpoint<A>>(
    endpoint: E,
    limits: Limits,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let timeout = if limits.long { LONG_TIMEOUT } else { TIMEOUT };
    let answer = AssertUnwindSafe(endpoint.answer(&request, payload, limits)).catch_unwind();
    let problem = match tokio::time::timeout(timeout, answer).await {
        Ok(Ok(Ok(response))) => return response,
        Ok(Ok(Err(problem))) => problem,
        Ok(Err(panic)) => Problem::internal(format!("panicked: {}", panic_message(&*panic))),
        Err(_) => Problem::new(&Code::UNAVAILABLE, "the request took too long; try again in a moment"),
    };
    problem.respond(&request)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

macro_rules! endpoint {
    ($($argument:ident $value:ident),*) => {
        impl<F, Answer, R, P, $($argument),*> Endpoint<(P, $($argument,)*)> for F
        where
            F: Fn(P, $($argument),*) -> Answer + Clone + Send + Sync + 'static,
            Answer: Future<Output = Result<R, Problem>>,
            R: Reply,
            P: Policy,
            $($argument: Extract),*
        {
            fn describe(operation: &mut Operation) {
                P::describe(operation);
                $($argument::describe(operation);)*
                R::describe(operation);
            }

            async fn answer(
                &self,
                request: &HttpRequest,
                mut payload: Payload,
                limits: Limits,
            ) -> Result<HttpResponse, Problem> {
                let mut policy = P::extract(request, &mut payload).await?;
                let work = match once::begin(request, &mut payload, policy.actor(), limits).await? {
                    Begin::Work(work) => work,
                    Begin::Answered(response) => return Ok(response),
                };
                let outcome = async {
                    $(let $value = $argument::extract(request, &mut payload).await?;)*
                    let _lane = lane::enter(request, limits.long).await?;
                    Ok(self(policy, $($value),*).await?.respond())
                };
                work.end(request, outcome.await).await
            }
        }
    };
}

endpoint!();
endpoint!(A a);
endpoint!(A a, B b);
endpoint!(A a, B b, C c);
endpoint!(A a, B b, C c, D d);
