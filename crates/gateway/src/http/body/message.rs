//! A body that is a mail.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Bytes;
use futures_util::Stream;
use kernel::Code;
use serde_json::json;

use super::read::{DEFAULT_LIMIT, expect_content_type};
use super::upload::{UploadError, UploadStream};
use crate::http::upload_kind::UploadKind;
use crate::http::{Describe, Extract, Operation};
use crate::problem::Problem;
use crate::protocol;

/// A streamed message (`message/rfc822`).
#[derive(Debug)]
pub struct MessageUpload(UploadStream);

impl Describe for MessageUpload {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string", "format": "binary" });
        // The service that reads the stream limits its size.
        let body = json!({ "required": true, "content": { "message/rfc822": { "schema": schema } } });
        operation.body(DEFAULT_LIMIT, body);
        operation.upload(UploadKind::Message);
        operation.codes(&[&Code::BAD_REQUEST, &Code::PAYLOAD_TOO_LARGE, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl Extract for MessageUpload {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        expect_content_type(request, "message/rfc822")?;
        Ok(Self(UploadStream::new(request, payload, UploadKind::Message)))
    }
}

impl MessageUpload {
    /// Returns the bytes. The stream ends with an error if the body breaks or is too slow.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, UploadError>> + Unpin {
        self.0
    }
}
