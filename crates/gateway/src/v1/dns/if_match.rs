//! `If-Match` of a zone. Its entity tag is its serial.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use dns::{DnsError, Precondition};

use crate::http::{Describe, Extract, Operation, if_match};
use crate::problem::Problem;

/// The serials that the request expects.
#[derive(Debug)]
pub(super) struct IfMatch(pub(super) Precondition);

impl Describe for IfMatch {
    fn describe(operation: &mut Operation) {
        operation.header("If-Match", "The ETag that the zone must have.");
        operation.code(&DnsError::PRECONDITION_FAILED);
    }
}

impl Extract for IfMatch {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self(if_match(request).map_or(Precondition::Any, Precondition::Serials)))
    }
}
