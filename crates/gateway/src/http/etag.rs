//! Entity tags (RFC 9110 sections 8.8.3 and 13.1.1).

use actix_web::http::header::{ETAG, HeaderValue, IF_MATCH};
use actix_web::{HttpRequest, HttpResponse};

use super::{Describe, Operation, Reply};

/// The states that `If-Match` names, by number; `None` when it is absent or `*`, which any state matches. A tag of
/// another form matches no state.
pub(crate) fn if_match(request: &HttpRequest) -> Option<Vec<u32>> {
    let mut sent = request.headers().get_all(IF_MATCH).peekable();
    sent.peek()?;
    let tags: Vec<&str> = sent.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(',')).collect();
    if tags.iter().any(|tag| tag.trim() == "*") {
        return None;
    }
    let number = |tag: &&str| {
        let digits = tag.trim().strip_prefix('"')?.strip_suffix('"')?;
        digits.parse().ok().filter(|number: &u32| number.to_string() == digits)
    };
    Some(tags.iter().filter_map(number).collect())
}

/// A response about the state of this number, with its `ETag`.
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
