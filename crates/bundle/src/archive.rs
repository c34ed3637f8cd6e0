//! The tar layer: from blocks to entries, with the names that extended headers give them.
//!
//! Not the `tar` crate's iterator: it takes the end of the stream for the end of the archive, does not look at what
//! follows the end marker, and resolves a pile of extended headers by rules of its own.

use std::io::{self, Read};
use std::mem;

use crate::header::{BLOCK, Header, Kind, Type};
use crate::source::Source;
use crate::{Fault, Reason, pax};

/// Far above what a name and some attributes take.
const EXTENSION_MAX_BYTES: u64 = 64 * 1024;

pub(crate) struct Archive<R> {
    source: Source<R>,
    started: bool,
}

pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// As in the archive, unchecked.
    pub(crate) name: Vec<u8>,
    /// Bytes of content; 0 for a directory.
    pub(crate) size: u64,
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(source: Source<R>) -> Self {
        Self { source, started: false }
    }

    /// The next entry; a file's [`Content`] has to be finished before the call after. `None` means that the archive,
    /// the gzip member and the upload all ended as they should.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        let first = !mem::replace(&mut self.started, true);
        let Some(header) = self.header()? else {
            return self.end().map(|()| None);
        };
        let name = match header.kind {
            Type::PaxGlobal if first => {
                let records = self.extension(&header)?;
                pax::global(&records).map_err(|reason| reason.at(&header.name))?;
                return self.next();
            }
            Type::Pax => {
                let records = self.extension(&header)?;
                pax::local(&records).map_err(|reason| reason.at(&header.name))?.map(<[u8]>::to_vec)
            }
            Type::LongName => {
                let mut name = self.extension(&header)?;
                name.pop_if(|last| *last == 0);
                Some(name)
            }
            _ => return Entry::new(header, None).map(Some),
        };
        match self.header()? {
            Some(extended) => Entry::new(extended, name).map(Some),
            None => Err(Reason::ExtensionMisplaced.at(&header.name)),
        }
    }

    pub(crate) fn content(&mut self, entry: &Entry) -> Content<'_, R> {
        Content { source: &mut self.source, left: entry.size, padding: padding(entry.size), fault: None }
    }

    /// `None` is the first block of the end marker.
    fn header(&mut self) -> Result<Option<Header>, Fault> {
        let mut block = [0; BLOCK];
        self.source.read_exact(&mut block)?;
        if block == [0; BLOCK] { Ok(None) } else { Header::parse(&block).map(Some) }
    }

    fn extension(&mut self, header: &Header) -> Result<Vec<u8>, Fault> {
        if header.size > EXTENSION_MAX_BYTES {
            return Err(Reason::ExtensionTooLarge.at(&header.name));
        }
        let mut content = vec![0; header.size as usize];
        self.source.read_exact(&mut content)?;
        self.source.skip(padding(header.size))?;
        Ok(content)
    }

    /// The second block of the end marker has to be there; the zeros after it fill up a tape block, if the writer cares.
    /// Read in large pieces, for a writer who cares too much.
    fn end(&mut self) -> Result<(), Fault> {
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
    fn new(header: Header, extended_name: Option<Vec<u8>>) -> Result<Self, Fault> {
        let name = extended_name.unwrap_or(header.name);
        let reason = match header.kind {
            Type::Entry(Kind::Directory) if header.size > 0 => Reason::DirectoryWithContent,
            Type::Entry(kind) => {
                return Ok(Self { kind, name, size: header.size });
            }
            Type::Refused(reason) => reason,
            Type::LongName | Type::Pax | Type::PaxGlobal => Reason::ExtensionMisplaced,
        };
        Err(reason.at(&name))
    }
}

fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

/// The content of one file. A fault is kept for [`Content::finish`], so a visitor that swallows the error hides nothing.
pub(crate) struct Content<'a, R> {
    source: &'a mut Source<R>,
    left: u64,
    padding: u64,
    fault: Option<Fault>,
}

impl<R: Read> Content<'_, R> {
    /// All of it at once, for a size that was checked.
    pub(crate) fn take_whole(&mut self) -> Result<Vec<u8>, Fault> {
        let mut content = vec![0; mem::take(&mut self.left) as usize];
        self.source.read_exact(&mut content)?;
        Ok(content)
    }

    /// Goes on to the next header, if `visited` and the content itself allow it.
    pub(crate) fn finish(self, visited: io::Result<()>) -> Result<(), Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        visited.map_err(Fault::Visit)?;
        self.source.skip(self.left)?;
        self.source.skip(self.padding)
    }
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.left.min(buffer.len() as u64) as usize;
        let (buffer, _) = buffer.split_at_mut(most);
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.fault.is_some() {
            return Err(refused());
        }
        match self.source.read_some(buffer) {
            Ok(count) => {
                self.left -= count as u64;
                Ok(count)
            }
            Err(fault) => {
                self.fault = Some(fault);
                Err(refused())
            }
        }
    }
}

/// For the visitor's eyes only; the caller of the reader gets the fault.
fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the bundle ends in the middle of this file, or is damaged")
}
