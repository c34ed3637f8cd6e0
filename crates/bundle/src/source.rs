//! Decompresses the upload: exactly one gzip member, within the byte limits.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

use crate::{BundleError, Limit, Limits, Reason};

/// The average allowance per entry for headers, extended headers and padding, in bytes. It fits a name of maximum
/// length in any format.
const OVERHEAD_PER_ENTRY: u64 = 4096;

/// The allowance for a global header, the end marker, and the padding to the size of a tape block.
const OVERHEAD_PER_ARCHIVE: u64 = 1024 * 1024;

pub(crate) struct Source<R> {
    gzip: GzDecoder<BufReader<Metered<R>>>,
    /// The remaining unpacked bytes, including overhead. The reader enforces the limit on the content itself.
    left: u64,
    unpacked_max: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(input: R, limits: &Limits) -> Self {
        let overhead = limits.entries.saturating_mul(OVERHEAD_PER_ENTRY).saturating_add(OVERHEAD_PER_ARCHIVE);
        let metered = Metered { input, count: 0, max: limits.compressed, failure: None };
        Self {
            gzip: GzDecoder::new(BufReader::with_capacity(32 * 1024, metered)),
            left: limits.unpacked.saturating_add(overhead),
            unpacked_max: limits.unpacked,
        }
    }

    /// Reads like [`Read::read`], into a non-empty buffer. Returns 0 only if the gzip member has ended with a valid
    /// checksum and the upload has ended too.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, BundleError> {
        let count = self.gzip.read(buffer).map_err(|error| self.classify(&error))?;
        if count == 0 {
            self.expect_end()?;
        }
        let too_large = BundleError::TooLarge { limit: Limit::Unpacked, max: self.unpacked_max };
        self.left = self.left.checked_sub(count as u64).ok_or(too_large)?;
        Ok(count)
    }

    /// Reads like [`Source::read`], but the end of the stream is an error.
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, BundleError> {
        match self.read(buffer)? {
            0 => Err(Reason::Truncated.into()),
            count => Ok(count),
        }
    }

    pub(crate) fn read_exact(&mut self, mut buffer: &mut [u8]) -> Result<(), BundleError> {
        while !buffer.is_empty() {
            let count = self.read_some(buffer)?;
            (_, buffer) = buffer.split_at_mut(count);
        }
        Ok(())
    }

    pub(crate) fn skip(&mut self, mut count: u64) -> Result<(), BundleError> {
        let mut scratch = [0; 8 * 1024];
        while count > 0 {
            let max = count.min(scratch.len() as u64) as usize;
            let (part, _) = scratch.split_at_mut(max);
            count -= self.read_some(part)? as u64;
        }
        Ok(())
    }

    fn expect_end(&mut self) -> Result<(), BundleError> {
        match self.gzip.get_mut().fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(Reason::TrailingBytes.into()),
            Err(error) => Err(self.classify(&error)),
        }
    }

    /// Converts an error of the decoder. An error of the input takes precedence; [`Metered`] has stored it.
    fn classify(&mut self, error: &io::Error) -> BundleError {
        if let Some(failure) = self.gzip.get_mut().get_mut().failure.take() {
            return failure;
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Reason::Truncated.into(),
            _ if self.gzip.header().is_none() => Reason::NotGzip.into(),
            _ => Reason::GzipCorrupt.into(),
        }
    }
}

/// Counts the bytes of the input, and stores the error that stops it.
struct Metered<R> {
    input: R,
    count: u64,
    max: u64,
    failure: Option<BundleError>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let failure = loop {
            match self.input.read(buffer) {
                Ok(count) => {
                    self.count = self.count.saturating_add(count as u64);
                    if self.count <= self.max {
                        return Ok(count);
                    }
                    break BundleError::TooLarge { limit: Limit::Compressed, max: self.max };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break BundleError::Io(error),
            }
        };
        self.failure = Some(failure);
        // An error kind that the decoder does not interpret, unlike `UnexpectedEof` and `WouldBlock`.
        Err(io::Error::other("stopped"))
    }
}
