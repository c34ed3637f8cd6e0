//! A writer that computes the digest of the bytes.

use std::io::{self, Write};

pub use protocol::{Digest, Digester};

/// A writer that computes the digest of the bytes that it forwards.
pub struct HashingWriter<W> {
    inner: W,
    digester: Digester,
}

impl<W> HashingWriter<W> {
    /// Forwards to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, digester: Digester::default() }
    }

    /// Returns the digest of all written bytes.
    pub fn finish(self) -> Digest {
        self.digester.finish()
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write_all(bytes)?;
        self.digester.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
