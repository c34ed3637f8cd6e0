//! Bundles and the bodies they come in.

use std::io;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{Stream, stream};

/// A gzipped tar of these files.
pub fn bundle(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, *content).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// A static site with one page.
pub fn site(page: &str) -> Vec<u8> {
    bundle(&[("svc.json", b"{}"), ("assets/index.html", page.as_bytes())])
}

/// Bytes that do not compress: xorshift.
pub fn noise(count: usize) -> Vec<u8> {
    let step = |state: &u32| {
        let mut next = *state;
        next ^= next << 13;
        next ^= next >> 17;
        next ^= next << 5;
        Some(next)
    };
    std::iter::successors(Some(1), step).map(|state| (state >> 8) as u8).take(count).collect()
}

/// The bytes as a body, in chunks of this size.
pub fn body(bytes: &[u8], chunk: usize) -> impl Stream<Item = io::Result<Bytes>> + Unpin + use<> {
    let chunks: Vec<_> = bytes.chunks(chunk).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    stream::iter(chunks)
}
