//! The link to the nodes, where a route is about them.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use convergence::{Convergence, ConvergenceError};

use super::{Describe, Extract, Operation};
use crate::problem::Problem;

/// The route is about what nodes carry out: without the link to them it answers `no_core` (specification, "Errors").
#[derive(Debug)]
pub struct Linked;

impl Describe for Linked {
    fn describe(operation: &mut Operation) {
        operation.code(&ConvergenceError::NO_CORE);
    }
}

impl Extract for Linked {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let convergence = <Data<Convergence> as Extract>::extract(request, payload).await?;
        convergence.core()?;
        Ok(Self)
    }
}
