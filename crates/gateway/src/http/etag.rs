//! What state an answer shows, and for what state a request is meant (RFC 9110 sections 8.8.3 and 13.1.1).

use actix_web::dev::Payload;
use actix_web::http::header::{ETAG, HeaderValue, IF_MATCH};
use actix_web::{HttpRequest, HttpResponse};
use dns::{DnsError, Expected};

use super::{Describe, Extract, Operation, Reply};
use crate::problem::Problem;

/// `If-Match`. Not sent, any state is meant; what is no tag of ours matches none.
#[derive(Debug)]
pub struct IfMatch(pub Expected);

impl Describe for IfMatch {
    fn describe(operation: &mut Operation) {
        operation.header("If-Match", "The ETag of the zone that the request is meant for.");
        operation.code(&DnsError::PRECONDITION_FAILED);
    }
}

impl Extract for IfMatch {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let mut sent = request.headers().get_all(IF_MATCH).peekable();
        if sent.peek().is_none() {
            return Ok(Self(Expected::Any));
        }
        let tags: Vec<&str> = sent.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(',')).collect();
        if tags.iter().any(|tag| tag.trim() == "*") {
            return Ok(Self(Expected::Any));
        }
        let serial = |tag: &&str| {
            let digits = tag.trim().strip_prefix('"')?.strip_suffix('"')?;
            digits.parse().ok().filter(|serial: &u32| serial.to_string() == digits)
        };
        Ok(Self(Expected::Serials(tags.iter().filter_map(serial).collect())))
    }
}

/// An answer about the state of this number, with its `ETag`.
#[derive(Debug)]
pub struct Tagged<R>(pub u32, pub R);

impl<R: Describe> Describe for Tagged<R> {
    fn describe(operation: &mut Operation) {
        R::describe(operation);
        operation.tagged = true;
    }
}

impl<R: Reply> Reply for Tagged<R> {
    fn respond(self) -> HttpResponse {
        let mut response = self.1.respond();
        // Digits between quotes are a header's value.
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", self.0)) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}
