//! Bundles and the bodies they come in.

use std::io;

use bytes::Bytes;
use futures_util::{Stream, stream};

pub use bundle::testing::{pack as bundle, site};

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
