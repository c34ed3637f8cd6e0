//! Bundles, and request bodies that carry them.

pub mod tar;

use std::io;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{Stream, stream};

/// Returns a gzipped tar of these files, which need not be a valid bundle.
///
/// # Panics
/// Panics if a path does not fit into a tar header.
#[must_use]
pub fn pack(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ::tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = ::tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, *content).unwrap();
    }
    archive.into_inner().and_then(GzEncoder::finish).unwrap()
}

/// Returns a static site with one page.
#[must_use]
pub fn site(page: &str) -> Vec<u8> {
    pack(&[("svc.json", b"{}"), ("assets/index.html", page.as_bytes())])
}

/// Returns bytes that do not compress (xorshift).
#[must_use]
pub fn incompressible(count: usize) -> Vec<u8> {
    let step = |state: &u32| {
        let mut next = *state;
        next ^= next << 13;
        next ^= next >> 17;
        next ^= next << 5;
        Some(next)
    };
    let bytes = std::iter::successors(Some(1), step).map(|state| (state >> 8).to_le_bytes()[0]);
    bytes.take(count).collect()
}

/// Returns the bytes as a request body, in chunks of this size.
pub fn body(bytes: &[u8], chunk: usize) -> impl Stream<Item = io::Result<Bytes>> + Unpin + use<> {
    let chunks: Vec<_> = bytes.chunks(chunk).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    stream::iter(chunks)
}
