//! A body that is a zone file.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use futures_util::StreamExt as _;
use kernel::Code;
use serde_json::json;

use super::read::expect_content_type;
use super::upload::UploadStream;
use crate::http::upload_kind::UploadKind;
use crate::http::{Describe, Extract, Operation};
use crate::problem::Problem;
use crate::protocol;

/// The largest zone file, in bytes.
const MAX_ZONEFILE_BYTES: usize = 8 * 1024 * 1024;

/// A zone file (`text/dns`, RFC 4027), which may not be UTF-8 text.
#[derive(Debug)]
pub struct ZonefileBody(pub Vec<u8>);

impl ZonefileBody {
    /// The content type of a zone file.
    pub const TYPE: &'static str = "text/dns";
}

impl Describe for ZonefileBody {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string" });
        let media = json!({ "schema": schema, "example": "www 300 IN A 192.0.2.1\n" });
        operation.body(MAX_ZONEFILE_BYTES, json!({ "required": true, "content": { Self::TYPE: media } }));
        operation.upload(UploadKind::ZoneFile);
        operation.codes(&[&Code::BAD_REQUEST, &Code::PAYLOAD_TOO_LARGE, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl Extract for ZonefileBody {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        expect_content_type(request, Self::TYPE)?;
        let mut stream = UploadStream::new(request, payload, UploadKind::ZoneFile);
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk?;
            if bytes.len() + chunk.len() > MAX_ZONEFILE_BYTES {
                return Err(Problem::too_large(MAX_ZONEFILE_BYTES as u64));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Self(bytes))
    }
}
