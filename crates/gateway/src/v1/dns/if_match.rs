//! `If-Match` of a zone, whose entity tag is its serial.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use dns::{DnsError, Expected};

use crate::http::{Describe, Extract, Operation, if_match};
use crate::problem::Problem;

/// The serials that the request is meant for.
#[derive(Debug)]
pub(super) struct IfMatch(pub(super) Expected);

impl Describe for IfMatch {
    fn describe(operation: &mut Operation) {
        operation.header("If-Match", "The ETag of the zone that the request is meant for.");
        operation.code(&DnsError::PRECONDITION_FAILED);
    }
}

impl Extract for IfMatch {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self(if_match(request).map_or(Expected::Any, Expected::Serials)))
    }
}
