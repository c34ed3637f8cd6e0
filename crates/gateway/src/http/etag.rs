//! Entity tags (RFC 9110 sections 8.8.3 and 13.1.1).

use actix_web::http::header::{ETAG, HeaderValue, IF_MATCH};
use actix_web::{HttpRequest, HttpResponse};

use super::{Describe, IntoResponse, Operation};

/// Returns the versions in `If-Match`. Returns `None` if the header is absent or `*`, because any version is then
/// accepted. A tag of another form matches no version.
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

/// A response with the `ETag` of this version.
#[derive(Debug)]
pub struct WithEtag<R>(pub u32, pub R);

impl<R: Describe> Describe for WithEtag<R> {
    fn describe(operation: &mut Operation) {
        R::describe(operation);
        operation.has_etag = true;
    }
}

impl<R: IntoResponse> IntoResponse for WithEtag<R> {
    fn into_response(self) -> HttpResponse {
        let mut response = self.1.into_response();
        // Quoted digits are always a valid header value.
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", self.0)) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}
