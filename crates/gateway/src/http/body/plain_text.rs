//! A body of text, as bytes.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Bytes;
use kernel::Code;
use serde_json::json;

use super::read_in_time;
use crate::http::{Describe, Extract, Operation};
use crate::problem::Problem;

/// A body of at most `LIMIT` bytes that is documented as `text/plain`. Any content type is accepted, and the bytes may
/// have any encoding.
#[derive(Debug)]
pub struct PlainText<const LIMIT: usize>(pub Bytes);

impl<const LIMIT: usize> Describe for PlainText<LIMIT> {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string" });
        operation.body(LIMIT, json!({ "required": true, "content": { "text/plain": { "schema": schema } } }));
        operation.codes(&[&Code::BAD_REQUEST, &Code::PAYLOAD_TOO_LARGE]);
    }
}

impl<const LIMIT: usize> Extract for PlainText<LIMIT> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        Ok(Self(read_in_time(request, payload, LIMIT).await?.into()))
    }
}
