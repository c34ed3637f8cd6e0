//! Parts of the platform that a route needs, as extractors: a deployment may be without them.

use std::ops::Deref;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use convergence::{Convergence, ConvergenceError};
use dns::{Dns, DnsError};

use crate::http::{Describe, Extract, Operation};
use crate::problem::Problem;

/// The link to the nodes. Without it the route answers `no_core` (specification, "Errors").
#[derive(Debug)]
pub struct RequireCore;

impl Describe for RequireCore {
    fn describe(operation: &mut Operation) {
        operation.code(&ConvergenceError::NO_CORE);
    }
}

impl Extract for RequireCore {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let convergence = <Data<Convergence> as Extract>::extract(request, payload).await?;
        convergence.core()?;
        Ok(Self)
    }
}

/// Hosted zones. The route answers `dns_not_configured` where none are hosted, and `no_core` without the link to their
/// nameservers (specification, "DNS zones", rule 1).
#[derive(Debug)]
pub struct RequireDns(Data<Dns>);

impl Deref for RequireDns {
    type Target = Dns;

    fn deref(&self) -> &Dns {
        &self.0
    }
}

impl Describe for RequireDns {
    fn describe(operation: &mut Operation) {
        operation.code(&DnsError::NOT_CONFIGURED);
        RequireCore::describe(operation);
    }
}

impl Extract for RequireDns {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let dns = <Data<Dns> as Extract>::extract(request, payload).await?;
        dns.hosting()?;
        RequireCore::extract(request, payload).await?;
        Ok(Self(dns))
    }
}
