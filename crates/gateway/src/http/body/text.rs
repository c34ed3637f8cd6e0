//! A body that is a zone file.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use dns::DnsError;
use dns::zonefile::{LineError, MAX_ERRORS};
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

/// A zone file (`text/dns`, RFC 4027).
#[derive(Debug)]
pub struct ZonefileText(pub String);

impl ZonefileText {
    /// The content type of a zone file.
    pub const TYPE: &'static str = "text/dns";
}

impl Describe for ZonefileText {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string" });
        let media = json!({ "schema": schema, "example": "www 300 IN A 192.0.2.1\n" });
        operation.body(MAX_ZONEFILE_BYTES, json!({ "required": true, "content": { Self::TYPE: media } }));
        operation.upload(UploadKind::ZoneFile);
        operation.codes(&[&Code::BAD_REQUEST, &Code::PAYLOAD_TOO_LARGE, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl Extract for ZonefileText {
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
        Ok(Self(decode(bytes)?))
    }
}

/// Decodes a zone file, or returns the lines that are not UTF-8.
fn decode(bytes: Vec<u8>) -> Result<String, DnsError> {
    String::from_utf8(bytes).map_err(|error| {
        let lines = (1..).zip(error.as_bytes().split(|byte| *byte == b'\n'));
        let invalid = lines.filter(|(_, line)| std::str::from_utf8(line).is_err());
        let errors = invalid.map(|(line, _)| LineError { line, message: "the line is not UTF-8 text".to_owned() });
        DnsError::InvalidLines(errors.take(MAX_ERRORS).collect())
    })
}
