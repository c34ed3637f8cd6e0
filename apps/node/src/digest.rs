//! Computing the digest of bytes while they are written.

use std::io::{self, Write};

pub use protocol::{Digest, Digester};

/// Computes the digest of the bytes that it passes on.
pub struct Hashing<W> {
    inner: W,
    digester: Digester,
}

impl<W> Hashing<W> {
    /// Passes on to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, digester: Digester::default() }
    }

    /// The digest of everything that was written.
    pub fn finish(self) -> Digest {
        self.digester.finish()
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write_all(bytes)?;
        self.digester.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
