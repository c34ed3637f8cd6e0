//! Writes a gzipped tar archive without timestamps, owners and platform fields, within the limits.

use std::io::{self, Read, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};

use super::{PackError, too_large};
use crate::{Limit, Limits};

/// The value of the gzip header's OS field for an unknown system (RFC 1952).
const UNKNOWN_OS: u8 = 255;

pub(super) struct Writer<W: Write> {
    archive: tar::Builder<GzEncoder<Bounded<W>>>,
    limits: Limits,
    unpacked: u64,
}

/// An output with a limit.
struct Bounded<W: Write> {
    output: io::BufWriter<W>,
    remaining: u64,
}

/// The reason why the output did not accept bytes. It distinguishes the errors of the output from those of the content.
#[derive(Debug, thiserror::Error)]
enum OutputError {
    #[error("the bundle is too large")]
    LimitReached,
    #[error(transparent)]
    Io(io::Error),
}

impl<W: Write> Writer<W> {
    pub(super) fn new(output: W, limits: &Limits) -> Self {
        let output = Bounded { output: io::BufWriter::new(output), remaining: limits.compressed };
        let gzip = GzBuilder::new().mtime(0).operating_system(UNKNOWN_OS).write(output, Compression::new(6));
        Self { archive: tar::Builder::new(gzip), limits: *limits, unpacked: 0 }
    }

    pub(super) fn append(&mut self, path: &Path, size: u64, content: impl Read) -> Result<(), PackError> {
        self.unpacked = self.unpacked.saturating_add(size);
        if self.unpacked > self.limits.unpacked {
            return Err(too_large(Limit::Unpacked, self.limits.unpacked));
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        let content = ExactReader { content, remaining: size };
        let appended = self.archive.append_data(&mut header, path, content);
        appended
            .map_err(|error| pack_error(error, &self.limits, |error| PackError::Read { path: path.to_owned(), error }))
    }

    pub(super) fn finish(self) -> Result<(), PackError> {
        let limits = self.limits;
        let finish = || {
            let Bounded { mut output, .. } = self.archive.into_inner()?.finish()?;
            output.flush()
        };
        finish().map_err(|error| pack_error(error, &limits, PackError::Write))
    }
}

/// Converts an error of packing. `other` converts those that are not an [`OutputError`].
fn pack_error(error: io::Error, limits: &Limits, other: impl FnOnce(io::Error) -> PackError) -> PackError {
    match error.downcast() {
        Ok(OutputError::LimitReached) => too_large(Limit::Compressed, limits.compressed),
        Ok(OutputError::Io(error)) => PackError::Write(error),
        Err(error) => other(error),
    }
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        let Some(remaining) = self.remaining.checked_sub(length) else {
            return Err(io::Error::other(OutputError::LimitReached));
        };
        self.output.write_all(bytes).map_err(|error| io::Error::other(OutputError::Io(error)))?;
        self.remaining = remaining;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Reads exactly the size in the tar header, even if the file changes during packing.
struct ExactReader<R> {
    content: R,
    remaining: u64,
}

impl<R: Read> Read for ExactReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&mut self.content).take(self.remaining).read(buffer)?;
        if read == 0 && self.remaining > 0 && !buffer.is_empty() {
            return Err(io::Error::other("the file shrank while it was being read"));
        }
        self.remaining -= read as u64;
        Ok(read)
    }
}
