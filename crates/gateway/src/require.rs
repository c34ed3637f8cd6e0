//! Extractors for parts of the platform that an installation may lack.

use std::ops::Deref;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use convergence::{Convergence, ConvergenceError};
use dns::{Dns, DnsError};

use crate::http::{Describe, Extract, Operation};
use crate::problem::Problem;

/// Requires the link to the nodes. Without it the route fails with `no_core` (specification, "Errors").
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

/// Requires DNS hosting. The route fails with `dns_not_configured` if the installation hosts no zones, and with
/// `no_core` without the link to the nameservers (specification, "DNS zones", rule 1).
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
