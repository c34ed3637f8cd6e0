//! Computing SHA-256, the name of everything that is cached.

use std::io::{self, Write};

pub use protocol::Digest;
use ring::digest::{Context, SHA256};

/// Computes the digest of the bytes that it passes on.
pub struct Hashing<W> {
    inner: W,
    context: Context,
}

/// The digest of these bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    let mut context = start();
    context.update(bytes);
    finish(context)
}

/// A computation of one.
pub fn start() -> Context {
    Context::new(&SHA256)
}

/// The digest of everything that the computation was given.
pub fn finish(context: Context) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    Digest::from_bytes(bytes)
}

impl<W> Hashing<W> {
    /// Passes on to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, context: start() }
    }

    /// The digest of everything that was written.
    pub fn finish(self) -> Digest {
        finish(self.context)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write_all(bytes)?;
        self.context.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
