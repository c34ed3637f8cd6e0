//! One 512-byte tar header.

use crate::{BundleError, Reason};

pub(crate) const BLOCK: usize = 512;

/// The type of an entry in a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
}

/// The type of the data that follows a header.
pub(crate) enum HeaderType {
    Entry(EntryKind),
    /// GNU `L`: the content is the name of the next entry.
    LongName,
    /// POSIX `x`: the content is pax records for the next entry.
    Pax,
    /// POSIX `g`: the content is pax records for all following entries.
    PaxGlobal,
    /// A type that a bundle cannot contain. The error must name the entry, whose name may be in the preceding extended
    /// header. The caller therefore reports the error later.
    Unsupported(Reason),
}

pub(crate) struct Header {
    pub(crate) kind: HeaderType,
    pub(crate) name: Vec<u8>,
    /// Bytes of content in the archive, without the padding.
    pub(crate) size: u64,
}

impl Header {
    pub(crate) fn parse(block: &[u8; BLOCK]) -> Result<Self, BundleError> {
        let raw = tar::Header::from_byte_slice(block);
        // Errors name no entry until the checksum shows that the name is valid.
        if parse_octal(&raw.as_old().cksum) != Some(checksum(block)) {
            return Err(Reason::ChecksumMismatch.into());
        }
        let name = raw.path_bytes().into_owned();
        // This field decides whether there is a name prefix, and lenient readers disagree about unusual values. So only
        // the three usual values are accepted.
        let (ustar, gnu, v7) = (b"ustar\x0000", b"ustar  \0", &[0; 8]);
        let (_, magic) = block.split_at(257);
        if ![ustar, gnu, v7].iter().any(|known| magic.starts_with(*known)) {
            return Err(Reason::HeaderInvalid.at(&name));
        }
        match parse_size(&raw.as_old().size) {
            Some(size) => Ok(Self { kind: header_type(raw.entry_type()), name, size }),
            None => Err(Reason::SizeInvalid.at(&name)),
        }
    }
}

fn header_type(entry: tar::EntryType) -> HeaderType {
    match entry {
        tar::EntryType::Regular => HeaderType::Entry(EntryKind::File),
        tar::EntryType::Directory => HeaderType::Entry(EntryKind::Directory),
        tar::EntryType::GNULongName => HeaderType::LongName,
        tar::EntryType::XHeader => HeaderType::Pax,
        tar::EntryType::XGlobalHeader => HeaderType::PaxGlobal,
        tar::EntryType::Link => HeaderType::Unsupported(Reason::HardLink),
        tar::EntryType::Symlink => HeaderType::Unsupported(Reason::SymbolicLink),
        tar::EntryType::Char => HeaderType::Unsupported(Reason::CharacterDevice),
        tar::EntryType::Block => HeaderType::Unsupported(Reason::BlockDevice),
        tar::EntryType::Fifo => HeaderType::Unsupported(Reason::Fifo),
        tar::EntryType::Continuous => HeaderType::Unsupported(Reason::ContiguousFile),
        tar::EntryType::GNUSparse => HeaderType::Unsupported(Reason::SparseFile),
        tar::EntryType::GNULongLink => HeaderType::Unsupported(Reason::LinkTarget),
        _ => HeaderType::Unsupported(Reason::UnknownType),
    }
}

/// Returns the sum of all bytes, with the eight bytes of the checksum field counted as spaces.
fn checksum(block: &[u8; BLOCK]) -> u64 {
    let counted = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { b' ' } else { *byte };
    block.iter().enumerate().map(counted).map(u64::from).sum()
}

/// Parses an octal number, or a GNU base-256 number that is positive and fits 64 bits. The `tar` crate reads only the
/// low 64 bits of a base-256 number, so it turns huge and negative sizes into small ones.
fn parse_size(field: &[u8; 12]) -> Option<u64> {
    match field {
        [0x80, 0, 0, 0, low @ ..] => Some(u64::from_be_bytes(*low)),
        digits => parse_octal(digits),
    }
}

/// Parses optional spaces, octal digits, and then only spaces and NULs. The field has at most twelve digits, so the
/// number cannot overflow.
fn parse_octal(field: &[u8]) -> Option<u64> {
    let spaces = field.iter().take_while(|byte| **byte == b' ').count();
    let (_, text) = field.split_at_checked(spaces)?;
    let digits = text.iter().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let (digits, rest) = text.split_at_checked(digits)?;
    if digits.is_empty() || !rest.iter().all(|byte| matches!(byte, b' ' | 0)) {
        return None;
    }
    Some(digits.iter().fold(0, |value, digit| value * 8 + u64::from(digit - b'0')))
}
