//! The node's own pages and errors.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, ContentType, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use tls::sent_request_id;

use crate::random;

/// Returns a small HTML error page. It is never cached.
pub fn page(status: StatusCode, text: &'static str) -> HttpResponse {
    let title = status.canonical_reason().unwrap_or_default();
    HttpResponse::build(status)
        .content_type(ContentType::html())
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(format!("<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n<p>{text}</p>\n"))
}

/// Adds `Retry-After` to a response: the first whole second after `wait`.
pub fn with_retry_after(mut response: HttpResponse, wait: Duration) -> HttpResponse {
    response.headers_mut().insert(RETRY_AFTER, (wait.as_secs() + 1).into());
    response
}

/// Escapes a text for the content of an element, or for an attribute in double quotes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Returns the platform's error envelope for a request to a hostname without a site.
pub fn unknown_hostname_error(request: &HttpRequest) -> HttpResponse {
    let request_id = sent_request_id(request.headers()).map_or_else(|| random::id().to_string(), str::to_owned);
    let envelope = json!({
        "code": "unknown_hostname",
        "message": "No project is served at this hostname. If you just added the hostname, try again in a minute.",
        "details": null,
        "requestId": request_id,
    });
    HttpResponse::NotFound()
        .insert_header(("X-Request-Id", request_id))
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(envelope)
}
