//! The upload as a stream of unpacked bytes: exactly one gzip member, within the limits that count bytes.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

use crate::{Fault, Limit, Limits, Reason};

/// How many bytes of headers, extended headers and padding an entry may take on average, beside its content: enough for
/// a name of full length in any format.
const OVERHEAD_PER_ENTRY: u64 = 4096;

/// For the end marker and the padding up to a tape block, and for a global header.
const OVERHEAD_PER_ARCHIVE: u64 = 1024 * 1024;

pub(crate) struct Source<R> {
    gzip: GzDecoder<BufReader<Metered<R>>>,
    /// Unpacked bytes that may still come, overhead included; the limit on content alone is the reader's to keep.
    left: u64,
    unpacked_max: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(input: R, limits: &Limits) -> Self {
        let overhead = limits.entries.saturating_mul(OVERHEAD_PER_ENTRY).saturating_add(OVERHEAD_PER_ARCHIVE);
        let metered = Metered { input, count: 0, max: limits.compressed, stopped: None };
        Self {
            gzip: GzDecoder::new(BufReader::with_capacity(32 * 1024, metered)),
            left: limits.unpacked.saturating_add(overhead),
            unpacked_max: limits.unpacked,
        }
    }

    /// Like [`Read::read`], into a buffer that is not empty. 0 means that the gzip member is over, its checksum right,
    /// and the upload over with it.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        let count = self.gzip.read(buffer).map_err(|error| self.fault(&error))?;
        if count == 0 {
            self.expect_end()?;
        }
        let too_large = Fault::TooLarge { limit: Limit::Unpacked, max: self.unpacked_max };
        self.left = self.left.checked_sub(count as u64).ok_or(too_large)?;
        Ok(count)
    }

    /// Like [`Source::read`], where the archive promises that there is more.
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        match self.read(buffer)? {
            0 => Err(Reason::Truncated.into()),
            count => Ok(count),
        }
    }

    pub(crate) fn read_exact(&mut self, mut buffer: &mut [u8]) -> Result<(), Fault> {
        while !buffer.is_empty() {
            let count = self.read_some(buffer)?;
            (_, buffer) = buffer.split_at_mut(count);
        }
        Ok(())
    }

    pub(crate) fn skip(&mut self, mut count: u64) -> Result<(), Fault> {
        let mut scratch = [0; 8 * 1024];
        while count > 0 {
            let most = count.min(scratch.len() as u64) as usize;
            let (part, _) = scratch.split_at_mut(most);
            count -= self.read_some(part)? as u64;
        }
        Ok(())
    }

    fn expect_end(&mut self) -> Result<(), Fault> {
        match self.gzip.get_mut().fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(Reason::TrailingBytes.into()),
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// The decoder reports its own findings and the input's errors alike; the latter are told by having been stashed.
    fn fault(&mut self, error: &io::Error) -> Fault {
        if let Some(stopped) = self.gzip.get_mut().get_mut().stopped.take() {
            return stopped;
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Reason::Truncated.into(),
            _ if self.gzip.header().is_none() => Reason::NotGzip.into(),
            _ => Reason::GzipCorrupt.into(),
        }
    }
}

/// Counts what the input gives, and keeps the reason when it stops giving.
struct Metered<R> {
    input: R,
    count: u64,
    max: u64,
    stopped: Option<Fault>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let fault = loop {
            match self.input.read(buffer) {
                Ok(count) => {
                    self.count = self.count.saturating_add(count as u64);
                    if self.count <= self.max {
                        return Ok(count);
                    }
                    break Fault::TooLarge { limit: Limit::Compressed, max: self.max };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Fault::Io(error),
            }
        };
        self.stopped = Some(fault);
        // Of a kind that the decoder reads nothing into: not `UnexpectedEof`, not `WouldBlock`.
        Err(io::Error::other("stopped"))
    }
}
