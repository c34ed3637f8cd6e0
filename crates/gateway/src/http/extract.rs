//! The parts of a handler: its policy, its other arguments, and its response.

use actix_web::dev::Payload;
use actix_web::{HttpRequest, HttpResponse, web};
use kernel::audit::Actor;

use super::Operation;
use crate::problem::Problem;

/// Adds to a route's description what a type brings with it.
pub trait Describe {
    /// Adds it.
    fn describe(operation: &mut Operation);
}

/// An argument of a handler.
pub trait Extract: Describe + Sized {
    /// Reads it from the request.
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem>;
}

/// The first argument of every handler: who may call.
pub trait Policy: Extract {
    /// The caller, where there is one.
    fn actor(&mut self) -> Option<&mut Actor> {
        None
    }
}

/// The response of a handler.
pub trait Reply: Describe {
    /// Renders it.
    fn respond(self) -> HttpResponse;
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

/// Two arguments as one, for a handler that takes many.
impl<A: Extract, B: Extract> Extract for (A, B) {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        Ok((A::extract(request, payload).await?, B::extract(request, payload).await?))
    }
}
