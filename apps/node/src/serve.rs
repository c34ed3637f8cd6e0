//! Responses from a bundle's assets.

use actix_web::http::header::{ALLOW, CACHE_CONTROL, HeaderValue, LOCATION};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse};

use crate::asset::{self, REVALIDATE};
use crate::contents::Contents;
use crate::index::{Entry, Index};
use crate::page::page;
use crate::path;

/// Responds from the assets, without worker code.
pub async fn serve_assets(request: &HttpRequest, contents: &Contents, index: &Index) -> HttpResponse {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response =
            page(StatusCode::METHOD_NOT_ALLOWED, "This address accepts only GET and HEAD. Send a GET request.");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let Some(path) = path::decode(request.uri().path()) else {
        return page(StatusCode::BAD_REQUEST, "The address is malformed. Check the address.");
    };
    match index.find(&path) {
        Entry::Asset(name, asset) => asset::respond(request, contents, name, asset).await,
        Entry::Directory => redirect_to_directory(request),
        Entry::Missing => match index.not_found_page() {
            Entry::Asset(name, asset) => asset::not_found(request, contents, name, asset).await,
            _ => page(StatusCode::NOT_FOUND, "There is no page at this address. Check the address."),
        },
    }
}

/// Redirects to the directory with a trailing slash, so that relative links resolve below it.
fn redirect_to_directory(request: &HttpRequest) -> HttpResponse {
    let uri = request.uri();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    HttpResponse::PermanentRedirect()
        .insert_header((LOCATION, format!("{}/{query}", uri.path())))
        .insert_header((CACHE_CONTROL, REVALIDATE))
        .finish()
}
