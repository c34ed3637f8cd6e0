//! Zones, where this deployment hosts any.

use std::ops::Deref;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use dns::{Dns, DnsError};

use super::{Describe, Extract, Linked, Operation};
use crate::problem::Problem;

/// The route is about zones: it answers `dns_not_configured` where none are hosted, and `no_core` without the link to
/// what serves them (specification, "DNS zones", rule 1).
#[derive(Debug)]
pub struct Hosted(Data<Dns>);

impl Deref for Hosted {
    type Target = Dns;

    fn deref(&self) -> &Dns {
        &self.0
    }
}

impl Describe for Hosted {
    fn describe(operation: &mut Operation) {
        operation.code(&DnsError::NOT_CONFIGURED);
        Linked::describe(operation);
    }
}

impl Extract for Hosted {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let dns = <Data<Dns> as Extract>::extract(request, payload).await?;
        dns.hosting()?;
        Linked::extract(request, payload).await?;
        Ok(Self(dns))
    }
}
