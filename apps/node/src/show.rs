//! Answering a request out of a bundle's assets.

use actix_web::http::header::{ALLOW, CACHE_CONTROL, HeaderValue, LOCATION};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse};

use crate::asset::{self, REVALIDATE};
use crate::contents::Contents;
use crate::index::{Found, Index};
use crate::page::page;
use crate::path;

/// Answers with the assets alone.
pub async fn show(request: &HttpRequest, contents: &Contents, index: &Index) -> HttpResponse {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = page(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are answered here.");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let Some(path) = path::decode(request.uri().path()) else {
        return page(StatusCode::BAD_REQUEST, "The address is malformed.");
    };
    match index.find(&path) {
        Found::Asset(name, asset) => asset::answer(request, contents, name, asset).await,
        Found::Directory => directory(request),
        Found::Nothing => match index.not_found_page() {
            Found::Asset(name, asset) => asset::not_found(request, contents, name, asset).await,
            _ => page(StatusCode::NOT_FOUND, "There is nothing at this address."),
        },
    }
}

/// To the directory's own address, so that the relative links of its page lead into it.
fn directory(request: &HttpRequest) -> HttpResponse {
    let uri = request.uri();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    HttpResponse::PermanentRedirect()
        .insert_header((LOCATION, format!("{}/{query}", uri.path())))
        .insert_header((CACHE_CONTROL, REVALIDATE))
        .finish()
}
