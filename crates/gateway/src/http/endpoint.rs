//! An async function as a route: its arguments are extracted one after the other, the policy first, so that nobody
//! learns anything about a request's shape who may not make it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::FutureExt as _;
use kernel::Code;
use kernel::audit::Actor;

use super::once::{self, Begin};
use super::{Operation, lane};
use crate::problem::Problem;

/// How long any request may take but one that carries a file or waits for a change.
const LONGEST: Duration = Duration::from_secs(10);

/// How long those may take.
const LONGEST_OF_ALL: Duration = Duration::from_secs(900);

/// Says of a route what a type brings with it.
pub trait Describe {
    /// Adds it to the description.
    fn describe(operation: &mut Operation);
}

/// What a handler takes.
pub trait Extract: Describe + Sized {
    /// Takes it out of the request.
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem>;
}

/// Who may call: the first argument of every handler.
pub trait Policy: Extract {
    /// Who acts, where somebody is signed in.
    fn actor(&mut self) -> Option<&mut Actor> {
        None
    }
}

/// What a handler answers.
pub trait Reply: Describe {
    /// The response.
    fn respond(self) -> HttpResponse;
}

/// A handler that can be a route.
pub trait Endpoint<Arguments>: Clone + Send + Sync + 'static {
    /// Describes the route.
    fn describe(operation: &mut Operation);

    /// Answers a request; a `long` one may bring a file.
    async fn answer(&self, request: &HttpRequest, payload: Payload, long: bool) -> Result<HttpResponse, Problem>;
}

/// Runs a handler so that a panic, a hang and an error all become an envelope.
pub(crate) async fn run<A, E: Endpoint<A>>(
    endpoint: E,
    long: bool,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let longest = if long { LONGEST_OF_ALL } else { LONGEST };
    let answer = AssertUnwindSafe(endpoint.answer(&request, payload, long)).catch_unwind();
    let problem = match tokio::time::timeout(longest, answer).await {
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

impl<T: 'static> Describe for web::Data<T> {
    fn describe(_: &mut Operation) {}
}

impl<T: 'static> Extract for web::Data<T> {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let data = request.app_data::<Self>().cloned();
        data.ok_or_else(|| Problem::internal(format!("{} is not wired", std::any::type_name::<T>())))
    }
}

impl<A: Describe, B: Describe> Describe for (A, B) {
    fn describe(operation: &mut Operation) {
        A::describe(operation);
        B::describe(operation);
    }
}

/// Two at once, for a handler that takes many.
impl<A: Extract, B: Extract> Extract for (A, B) {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        Ok((A::extract(request, payload).await?, B::extract(request, payload).await?))
    }
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
                long: bool,
            ) -> Result<HttpResponse, Problem> {
                let mut policy = P::extract(request, &mut payload).await?;
                let work = match once::begin(request, &mut payload, policy.actor(), long).await? {
                    Begin::Work(work) => work,
                    Begin::Answered(response) => return Ok(response),
                };
                let outcome = async {
                    $(let $value = $argument::extract(request, &mut payload).await?;)*
                    let _lane = lane::enter(request, long).await?;
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
