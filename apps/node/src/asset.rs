//! Answering with an asset.

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
use crate::range::{self, Wanted};

/// Everything may change with the next deploy, and an ETag makes asking cheap.
pub const REVALIDATE: HeaderValue = HeaderValue::from_static("public, max-age=0, must-revalidate");

const CHUNK: usize = 64 * 1024;

/// An asset in the coding that suits the visitor. Each coding is a representation of its own, with its own tag.
struct Representation<'a> {
    name: &'a str,
    blob: Blob,
    size: u64,
}

/// The asset called `name`, a part of it, or that the visitor has it already.
pub async fn answer(request: &HttpRequest, contents: &Contents, name: &str, asset: Asset) -> HttpResponse {
    let Some(chosen) = Representation::choose(request, name, asset) else { return not_acceptable() };
    let held = contents.held(chosen.blob);
    let etag = held.as_ref().map_or_else(|| chosen.blob.etag(), |held| held.etag.clone());
    let outcome = condition::evaluate(request.headers(), &etag);
    let range = match outcome {
        Outcome::Holds if request.method() == Method::GET && condition::allows_range(request.headers(), &etag) => {
            range::wanted(request.headers(), chosen.size)
        }
        _ => Wanted::Whole,
    };
    let status = match (outcome, range) {
        (Outcome::NotModified, _) => StatusCode::NOT_MODIFIED,
        (Outcome::Failed, _) => StatusCode::PRECONDITION_FAILED,
        (_, Wanted::Whole) => StatusCode::OK,
        (_, Wanted::Part { .. }) => StatusCode::PARTIAL_CONTENT,
        (_, Wanted::Unsatisfiable) => StatusCode::RANGE_NOT_SATISFIABLE,
    };
    let mut response = HttpResponse::build(status);
    response.insert_header((CACHE_CONTROL, REVALIDATE));
    chosen.tell_variance(&mut response);
    match (outcome, range) {
        (Outcome::Failed, _) => return response.finish(),
        (_, Wanted::Unsatisfiable) => {
            return response.insert_header((CONTENT_RANGE, format!("bytes */{}", chosen.size))).finish();
        }
        (_, Wanted::Part { first, last }) => {
            response.insert_header((CONTENT_RANGE, format!("bytes {first}-{last}/{}", chosen.size)));
        }
        (_, Wanted::Whole) => {}
    }
    response.insert_header((ETAG, etag));
    if outcome == Outcome::NotModified {
        return response.finish();
    }
    response.insert_header((ACCEPT_RANGES, HeaderValue::from_static("bytes")));
    let held = held.map(|held| held.bytes);
    chosen.send(response, request, contents, held, range).await
}

/// The site's own page for what is missing. Conditions and ranges are about what was asked for, so they do not apply.
pub async fn not_found(request: &HttpRequest, contents: &Contents, name: &str, asset: Asset) -> HttpResponse {
    let Some(chosen) = Representation::choose(request, name, asset) else { return not_acceptable() };
    let mut response = HttpResponse::NotFound();
    response.insert_header((CACHE_CONTROL, REVALIDATE));
    chosen.tell_variance(&mut response);
    let held = contents.held(chosen.blob).map(|held| held.bytes);
    chosen.send(response, request, contents, held, Wanted::Whole).await
}

impl<'a> Representation<'a> {
    fn choose(request: &HttpRequest, name: &'a str, asset: Asset) -> Option<Self> {
        let coding = Coding::choose(request.headers(), asset.codings())?;
        let size = asset.size_in(coding)?;
        Some(Self { name, blob: Blob { content: asset.content, coding }, size })
    }

    /// Also before there is a choice, and where it does not save: whoever keeps the answer asks again when it is needed.
    fn tell_variance(&self, response: &mut HttpResponseBuilder) {
        if media::is_compressible(self.name) {
            response.insert_header((VARY, HeaderValue::from_static("Accept-Encoding")));
        }
    }

    async fn send(
        self,
        mut response: HttpResponseBuilder,
        request: &HttpRequest,
        contents: &Contents,
        held: Option<Bytes>,
        range: Wanted,
    ) -> HttpResponse {
        response.insert_header((CONTENT_TYPE, media::content_type(self.name)));
        if self.blob.coding != Coding::Identity {
            response.insert_header((CONTENT_ENCODING, HeaderValue::from_static(self.blob.coding.name())));
        }
        if request.method() == Method::HEAD {
            return response.body(SizedStream::new(self.size, stream::empty::<io::Result<Bytes>>()));
        }
        let content = match held {
            Some(bytes) => Ok(Content::Held(bytes)),
            None => contents.open(self.blob, self.size).await,
        };
        let (first, length) = match range {
            Wanted::Part { first, last } => (first, last + 1 - first),
            Wanted::Whole | Wanted::Unsatisfiable => (0, self.size),
        };
        let sent = match content {
            Ok(Content::Held(bytes)) => Ok(response.body(part(bytes, first, length))),
            Ok(Content::File(file)) => file_part(file, first, length).await.map(|part| response.body(part)),
            Err(error) => Err(error),
        };
        sent.unwrap_or_else(|error| {
            tracing::error!(%error, blob = %self.blob, "an asset cannot be read");
            page(StatusCode::SERVICE_UNAVAILABLE, "This page cannot be read at the moment.")
        })
    }
}

/// Every form of it is one that the visitor refused.
fn not_acceptable() -> HttpResponse {
    let mut refusal = page(StatusCode::NOT_ACCEPTABLE, "This page is not to be had in the encoding that is asked for.");
    refusal.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    refusal
}

fn part(mut bytes: Bytes, first: u64, length: u64) -> Bytes {
    let within = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mut part = bytes.split_off(within(first).min(bytes.len()));
    part.truncate(within(length));
    part
}

/// Piece by piece: one visitor costs one piece, whatever the file's size.
async fn file_part(
    mut file: File,
    first: u64,
    length: u64,
) -> io::Result<SizedStream<impl Stream<Item = io::Result<Bytes>>>> {
    if first > 0 {
        file.seek(SeekFrom::Start(first)).await?;
    }
    let chunks = stream::try_unfold(file.take(length), async |mut file| {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let read = file.read_buf(&mut chunk).await?;
        Ok((read > 0).then(|| (chunk.freeze(), file)))
    });
    Ok(SizedStream::new(length, chunks))
}
