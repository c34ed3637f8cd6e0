//! Responses that serve an asset.

use std::io::{self, SeekFrom};

use actix_web::body::SizedStream;
use actix_web::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue, VARY,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Bytes, BytesMut};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use futures_util::stream::{self, Stream};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use crate::cache::Blob;
use crate::coding::Coding;
use crate::condition::{self, Outcome};
use crate::contents::{Content, Contents};
use crate::index::Asset;
use crate::media;
use crate::page::page;
use crate::range::{self, ByteRange};

/// Every asset may change with the next deploy. The ETag makes revalidation cheap.
pub const REVALIDATE: HeaderValue = HeaderValue::from_static("public, max-age=0, must-revalidate");

const CHUNK: usize = 64 * 1024;

/// An asset in the coding negotiated with the visitor. Each coding is a separate representation with its own ETag.
struct Representation<'a> {
    name: &'a str,
    blob: Blob,
    size: u64,
}

/// Serves the asset `name`: all of it, a range of it, or 304 if the visitor has it.
pub async fn respond(request: &HttpRequest, contents: &Contents, name: &str, asset: Asset) -> HttpResponse {
    let Some(chosen) = Representation::choose(request, name, asset) else { return not_acceptable() };
    let cached = contents.cached(chosen.blob);
    let etag = cached.as_ref().map_or_else(|| chosen.blob.etag(), |cached| cached.etag.clone());
    let outcome = condition::evaluate(request.headers(), &etag);
    let range = match outcome {
        Outcome::Holds if request.method() == Method::GET && condition::allows_range(request.headers(), &etag) => {
            range::requested(request.headers(), chosen.size)
        }
        _ => ByteRange::Whole,
    };
    let status = match (outcome, range) {
        (Outcome::NotModified, _) => StatusCode::NOT_MODIFIED,
        (Outcome::Failed, _) => StatusCode::PRECONDITION_FAILED,
        (_, ByteRange::Whole) => StatusCode::OK,
        (_, ByteRange::Part { .. }) => StatusCode::PARTIAL_CONTENT,
        (_, ByteRange::Unsatisfiable) => StatusCode::RANGE_NOT_SATISFIABLE,
    };
    let mut response = HttpResponse::build(status);
    response.insert_header((CACHE_CONTROL, REVALIDATE));
    chosen.set_vary(&mut response);
    match (outcome, range) {
        (Outcome::Failed, _) => return response.finish(),
        (_, ByteRange::Unsatisfiable) => {
            return response.insert_header((CONTENT_RANGE, format!("bytes */{}", chosen.size))).finish();
        }
        (_, ByteRange::Part { first, last }) => {
            response.insert_header((CONTENT_RANGE, format!("bytes {first}-{last}/{}", chosen.size)));
        }
        (_, ByteRange::Whole) => {}
    }
    response.insert_header((ETAG, etag));
    if outcome == Outcome::NotModified {
        return response.finish();
    }
    response.insert_header((ACCEPT_RANGES, HeaderValue::from_static("bytes")));
    let cached = cached.map(|cached| cached.bytes);
    chosen.send(response, request, contents, cached, range).await
}

/// Serves the site's own 404 page. Conditions and ranges apply to the requested asset, so they are ignored here.
pub async fn not_found(request: &HttpRequest, contents: &Contents, name: &str, asset: Asset) -> HttpResponse {
    let Some(chosen) = Representation::choose(request, name, asset) else { return not_acceptable() };
    let mut response = HttpResponse::NotFound();
    response.insert_header((CACHE_CONTROL, REVALIDATE));
    chosen.set_vary(&mut response);
    let cached = contents.cached(chosen.blob).map(|cached| cached.bytes);
    chosen.send(response, request, contents, cached, ByteRange::Whole).await
}

impl<'a> Representation<'a> {
    fn choose(request: &HttpRequest, name: &'a str, asset: Asset) -> Option<Self> {
        let coding = Coding::choose(request.headers(), asset.codings())?;
        let size = asset.size_in(coding)?;
        Some(Self { name, blob: Blob { content: asset.content, coding }, size })
    }

    /// Sets `Vary` for every compressible type, even while only one coding is stored: caches must not reuse the
    /// response after more codings are added.
    fn set_vary(&self, response: &mut HttpResponseBuilder) {
        if media::is_compressible(self.name) {
            response.insert_header((VARY, HeaderValue::from_static("Accept-Encoding")));
        }
    }

    async fn send(
        self,
        mut response: HttpResponseBuilder,
        request: &HttpRequest,
        contents: &Contents,
        cached: Option<Bytes>,
        range: ByteRange,
    ) -> HttpResponse {
        response.insert_header((CONTENT_TYPE, media::content_type(self.name)));
        if self.blob.coding != Coding::Identity {
            response.insert_header((CONTENT_ENCODING, HeaderValue::from_static(self.blob.coding.name())));
        }
        if request.method() == Method::HEAD {
            return response.body(SizedStream::new(self.size, stream::empty::<io::Result<Bytes>>()));
        }
        let content = match cached {
            Some(bytes) => Ok(Content::Bytes(bytes)),
            None => contents.open(self.blob, self.size).await,
        };
        let (first, length) = match range {
            ByteRange::Part { first, last } => (first, last + 1 - first),
            ByteRange::Whole | ByteRange::Unsatisfiable => (0, self.size),
        };
        let sent = match content {
            Ok(Content::Bytes(bytes)) => Ok(response.body(part(bytes, first, length))),
            Ok(Content::File(file)) => file_part(file, self.blob, first, length).await.map(|part| response.body(part)),
            Err(error) => Err(error),
        };
        sent.unwrap_or_else(|error| {
            tracing::error!(%error, blob = %self.blob, "failed to read an asset");
            page(StatusCode::SERVICE_UNAVAILABLE, "We could not read this page. Try again in a moment.")
        })
    }
}

/// Returns the response to a request whose `Accept-Encoding` excludes every stored coding.
fn not_acceptable() -> HttpResponse {
    let mut response = page(
        StatusCode::NOT_ACCEPTABLE,
        "This page is not available in an encoding that you accept. Change the Accept-Encoding header of the request.",
    );
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

fn part(mut bytes: Bytes, first: u64, length: u64) -> Bytes {
    let within = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mut part = bytes.split_off(within(first).min(bytes.len()));
    part.truncate(within(length));
    part
}

/// Streams the file in chunks, so each visitor needs the memory of one chunk.
async fn file_part(
    mut file: File,
    blob: Blob,
    first: u64,
    length: u64,
) -> io::Result<SizedStream<impl Stream<Item = io::Result<Bytes>>>> {
    if first > 0 {
        file.seek(SeekFrom::Start(first)).await?;
    }
    let chunks = stream::try_unfold(file.take(length), move |mut file| async move {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let read = file.read_buf(&mut chunk).await;
        let read = read.inspect_err(|error| tracing::error!(%error, %blob, "failed to read an asset"))?;
        Ok((read > 0).then(|| (chunk.freeze(), file)))
    });
    Ok(SizedStream::new(length, chunks))
}
