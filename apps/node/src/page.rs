//! What the node says for itself, where a site has nothing to say.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, ContentType};
use serde_json::json;

use crate::random;

/// A small page for people. It goes away with its cause, so nobody keeps it.
pub fn page(status: StatusCode, text: &'static str) -> HttpResponse {
    let title = status.canonical_reason().unwrap_or_default();
    HttpResponse::build(status)
        .content_type(ContentType::html())
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(format!("<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n<p>{text}</p>\n"))
}

/// The platform's error envelope: no site is there to answer in its own way.
pub fn unknown_hostname() -> HttpResponse {
    let request_id = random::id().to_string();
    let envelope = json!({
        "code": "unknown_hostname",
        "message": "No project is served under this host name. One that was just added takes a moment.",
        "details": null,
        "requestId": request_id,
    });
    HttpResponse::NotFound()
        .insert_header(("X-Request-Id", request_id))
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(envelope)
}
