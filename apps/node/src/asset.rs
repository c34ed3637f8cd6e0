//! Answering with an asset.

use std::io;

use actix_web::body::SizedStream;
use actix_web::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Bytes, BytesMut};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use futures_util::stream::{self, Stream};
use mime_guess::mime;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

use crate::cache::Cache;
use crate::index::Asset;
use crate::page::page;

/// Everything may change with the next deploy, and an ETag makes asking cheap.
pub const REVALIDATE: &str = "public, max-age=0, must-revalidate";

const CHUNK: usize = 64 * 1024;

/// The asset called `name`, or that the visitor has it already.
pub async fn answer(request: &HttpRequest, cache: &Cache, name: &str, asset: Asset) -> HttpResponse {
    let etag = format!("\"{}\"", asset.content.hex());
    let is_known = has(request, &etag);
    let mut response = if is_known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response.insert_header((ETAG, etag)).insert_header((CACHE_CONTROL, REVALIDATE));
    if is_known { response.finish() } else { send(response, request, cache, name, asset).await }
}

/// The site's own page for what is missing. Conditions are about what was asked for, so they do not apply to it.
pub async fn not_found(request: &HttpRequest, cache: &Cache, name: &str, asset: Asset) -> HttpResponse {
    let mut response = HttpResponse::NotFound();
    response.insert_header((CACHE_CONTROL, REVALIDATE));
    send(response, request, cache, name, asset).await
}

async fn send(
    mut response: HttpResponseBuilder,
    request: &HttpRequest,
    cache: &Cache,
    name: &str,
    asset: Asset,
) -> HttpResponse {
    response.content_type(content_type(name));
    if request.method() == Method::HEAD {
        return response.body(SizedStream::new(asset.size, stream::empty::<io::Result<Bytes>>()));
    }
    match File::open(cache.blob(asset.content)).await {
        Ok(file) => response.body(SizedStream::new(asset.size, chunks(file))),
        Err(error) => {
            tracing::error!(%error, content = %asset.content, "an asset cannot be read");
            page(StatusCode::INTERNAL_SERVER_ERROR, "This page cannot be read at the moment.")
        }
    }
}

/// The file piece by piece: one visitor costs one piece, whatever the file's size.
fn chunks(file: File) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold(file, async |mut file| {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let read = file.read_buf(&mut chunk).await?;
        Ok((read > 0).then(|| (chunk.freeze(), file)))
    })
}

/// Whether `If-None-Match` names the content, by RFC 9110 13.1.2: a list, or `*`, compared weakly.
fn has(request: &HttpRequest, etag: &str) -> bool {
    let sent = request.headers().get_all(IF_NONE_MATCH).filter_map(|value| value.to_str().ok());
    let mut tags = sent.flat_map(|list| list.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

fn content_type(name: &str) -> String {
    let guess = mime_guess::from_path(name).first_or_octet_stream();
    if guess.type_() == mime::TEXT { format!("{guess}; charset=utf-8") } else { guess.to_string() }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn conditions_are_lists_compared_weakly() {
        let has = |sent: &[&str]| {
            let request =
                sent.iter().fold(TestRequest::get(), |request, value| request.append_header((IF_NONE_MATCH, *value)));
            super::has(&request.to_http_request(), "\"abc\"")
        };
        for sent in [&["\"abc\""][..], &["W/\"abc\""], &["*"], &["\"x\", \"abc\""], &["\"x\"", "\"abc\" ,\"y\""]] {
            assert!(has(sent), "{sent:?}");
        }
        for sent in [&[][..], &["abc"], &["\"abcd\""], &["\"x\""], &[""]] {
            assert!(!has(sent), "{sent:?}");
        }
    }

    #[test]
    fn text_is_utf_8() {
        for (name, expected) in [
            ("/index.html", "text/html; charset=utf-8"),
            ("/a.CSS", "text/css; charset=utf-8"),
            ("/a.js", "text/javascript; charset=utf-8"),
            ("/a.png", "image/png"),
            ("/a.json", "application/json"),
            ("/a.wasm", "application/wasm"),
            ("/LICENCE", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name), expected);
        }
    }
}
