//! The traits of a handler's policy, other arguments and response.

use actix_web::dev::Payload;
use actix_web::{HttpRequest, HttpResponse, web};
use kernel::Plan;
use kernel::audit::Actor;

use super::Operation;
use crate::problem::Problem;

/// A type that contributes to the description of a route.
pub trait Describe {
    /// Adds the type's parameters, bodies and error codes.
    fn describe(operation: &mut Operation);
}

/// An argument of a handler.
pub trait Extract: Describe + Sized {
    /// Extracts the argument from the request.
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem>;
}

/// The first argument of every handler: it authorizes the caller.
pub trait Policy: Extract {
    /// Returns the caller, if the policy authenticates one.
    fn actor(&mut self) -> Option<&mut Actor> {
        None
    }

    /// Returns the plan of the target's organization, if the policy has one. The limit of an upload may depend on it.
    fn plan(&self) -> Option<Plan> {
        None
    }
}

/// The response of a handler.
pub trait IntoResponse: Describe {
    /// Renders the response.
    fn into_response(self) -> HttpResponse;
}

impl<T: 'static> Describe for web::Data<T> {
    fn describe(_: &mut Operation) {}
}

impl<T: 'static> Extract for web::Data<T> {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let data = request.app_data::<Self>().cloned();
        data.ok_or_else(|| Problem::internal(format!("{} is missing from the app data", std::any::type_name::<T>())))
    }
}

impl<A: Describe, B: Describe> Describe for (A, B) {
    fn describe(operation: &mut Operation) {
        A::describe(operation);
        B::describe(operation);
    }
}

/// A pair of arguments counts as one argument, for handlers with many.
impl<A: Extract, B: Extract> Extract for (A, B) {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        Ok((A::extract(request, payload).await?, B::extract(request, payload).await?))
    }
}
