//! The tar layer: parses blocks into entries and applies the names from extended headers.
//!
//! This replaces the `tar` crate's iterator, which accepts the end of the stream as the end of the archive, ignores the
//! data after the end marker, and silently resolves several extended headers before one entry.

use std::io::{self, Read};
use std::mem;

use crate::header::{BLOCK, EntryKind, Header, HeaderType};
use crate::source::Source;
use crate::{BundleError, Reason, pax};

/// The largest extended header; a name and a few attributes need far less.
const MAX_EXTENSION_BYTES: u64 = 64 * 1024;

pub(crate) struct Archive<R> {
    source: Source<R>,
    started: bool,
}

pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    /// The name from the archive, not yet validated.
    pub(crate) name: Vec<u8>,
    /// Bytes of content; 0 for a directory.
    pub(crate) size: u64,
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(source: Source<R>) -> Self {
        Self { source, started: false }
    }

    /// Returns the next entry. Returns `None` if the archive, the gzip member and the upload all ended correctly. The
    /// caller must finish a file's [`Content`] before the next call.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, BundleError> {
        let first = !mem::replace(&mut self.started, true);
        let Some(header) = self.read_header()? else {
            return self.expect_end().map(|()| None);
        };
        let name = match header.kind {
            HeaderType::PaxGlobal if first => {
                let records = self.read_extension(&header)?;
                pax::parse_global(&records).map_err(|reason| reason.at(&header.name))?;
                return self.next();
            }
            HeaderType::Pax => {
                let records = self.read_extension(&header)?;
                pax::parse_local(&records).map_err(|reason| reason.at(&header.name))?.map(<[u8]>::to_vec)
            }
            HeaderType::LongName => {
                let mut name = self.read_extension(&header)?;
                name.pop_if(|last| *last == 0);
                Some(name)
            }
            _ => return Entry::new(header, None).map(Some),
        };
        match self.read_header()? {
            Some(extended) => Entry::new(extended, name).map(Some),
            None => Err(Reason::ExtensionMisplaced.at(&header.name)),
        }
    }

    pub(crate) fn content(&mut self, entry: &Entry) -> Content<'_, R> {
        Content { source: &mut self.source, left: entry.size, padding: padding(entry.size), error: None }
    }

    /// Reads a header; `None` for the first block of the end marker.
    fn read_header(&mut self) -> Result<Option<Header>, BundleError> {
        let mut block = [0; BLOCK];
        self.source.read_exact(&mut block)?;
        if block == [0; BLOCK] { Ok(None) } else { Header::parse(&block).map(Some) }
    }

    fn read_extension(&mut self, header: &Header) -> Result<Vec<u8>, BundleError> {
        if header.size > MAX_EXTENSION_BYTES {
            return Err(Reason::ExtensionTooLarge.at(&header.name));
        }
        let mut content = vec![0; header.size as usize];
        self.source.read_exact(&mut content)?;
        self.source.skip(padding(header.size))?;
        Ok(content)
    }

    /// Requires the second block of the end marker, then only zeros up to the end of the stream. Writers pad to the
    /// size of a tape block. The padding can be long, so it is read in large pieces.
    fn expect_end(&mut self) -> Result<(), BundleError> {
        const ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];
        let mut read = ZEROS;
        let (marker, _) = read.split_at_mut(BLOCK);
        self.source.read_exact(marker)?;
        let mut count = BLOCK;
        while count > 0 {
            if read.get(..count) != ZEROS.get(..count) {
                return Err(Reason::DataAfterEnd.into());
            }
            count = self.source.read(&mut read)?;
        }
        Ok(())
    }
}

impl Entry {
    fn new(header: Header, extended_name: Option<Vec<u8>>) -> Result<Self, BundleError> {
        let name = extended_name.unwrap_or(header.name);
        let reason = match header.kind {
            HeaderType::Entry(EntryKind::Directory) if header.size > 0 => Reason::DirectoryWithContent,
            HeaderType::Entry(kind) => {
                return Ok(Self { kind, name, size: header.size });
            }
            HeaderType::Unsupported(reason) => reason,
            HeaderType::LongName | HeaderType::Pax | HeaderType::PaxGlobal => Reason::ExtensionMisplaced,
        };
        Err(reason.at(&name))
    }
}

fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

/// The content of one file, which the visitor (the callback of [`read`](crate::read)) reads. It stores a read error for
/// [`Content::finish`], so that a visitor that ignores the error cannot hide it.
pub(crate) struct Content<'a, R> {
    source: &'a mut Source<R>,
    left: u64,
    padding: u64,
    error: Option<BundleError>,
}

impl<R: Read> Content<'_, R> {
    /// Reads the whole content into memory. The caller has checked the size.
    pub(crate) fn read_all(&mut self) -> Result<Vec<u8>, BundleError> {
        let mut content = vec![0; mem::take(&mut self.left) as usize];
        self.source.read_exact(&mut content)?;
        Ok(content)
    }

    /// Skips to the next header. Returns the stored read error, or the visitor's error.
    pub(crate) fn finish(self, visit_result: io::Result<()>) -> Result<(), BundleError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        visit_result.map_err(BundleError::Visit)?;
        self.source.skip(self.left)?;
        self.source.skip(self.padding)
    }
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let max = self.left.min(buffer.len() as u64) as usize;
        let (buffer, _) = buffer.split_at_mut(max);
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.error.is_some() {
            return Err(content_error());
        }
        match self.source.read_some(buffer) {
            Ok(count) => {
                self.left -= count as u64;
                Ok(count)
            }
            Err(error) => {
                self.error = Some(error);
                Err(content_error())
            }
        }
    }
}

/// Returns the error that the visitor sees. The caller of [`read`](crate::read) receives the [`BundleError`].
fn content_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the bundle is invalid or truncated within this file")
}
