//! A raw body, for signatures over its bytes.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Bytes;
use kernel::Code;
use serde_json::json;

use super::read::{DEFAULT_LIMIT, read_in_time};
use crate::http::{Describe, Extract, Operation, RequestHeaders};
use crate::problem::Problem;

/// The bytes of a body of at most `LIMIT` bytes and of any content type, with the request's headers. A webhook's
/// signature is checked over these bytes before they are parsed.
#[derive(Debug)]
pub struct Raw<const LIMIT: usize = DEFAULT_LIMIT> {
    pub bytes: Bytes,
    pub headers: RequestHeaders,
}

impl<const LIMIT: usize> Describe for Raw<LIMIT> {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string", "format": "binary" });
        operation.body(LIMIT, json!({ "required": true, "content": { "*/*": { "schema": schema } } }));
        operation.codes(&[&Code::BAD_REQUEST, &Code::PAYLOAD_TOO_LARGE]);
    }
}

impl<const LIMIT: usize> Extract for Raw<LIMIT> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let bytes = read_in_time(request, payload, LIMIT).await?.into();
        Ok(Self { bytes, headers: RequestHeaders::extract(request, payload).await? })
    }
}
